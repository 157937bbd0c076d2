//! The provisioner's steps: read, carry out, settle, commit; drain what was parked; and how it dies.

use super::{Desk, Source, Step, cluster, tell};
use crate::Protocol;
use crate::guards::{self, Guard};
use crate::state::{Ended, Job, Lane, Late, Provisioner, Said, State};

const SOURCES: [Source; 2] = [Source::Topic, Source::Parked];

pub(super) fn progress(protocol: &Protocol, state: &State, steps: &mut Vec<Step>) {
    match state.topic.owner {
        None => {
            steps.extend((0..state.provisioners.len()).map(|provisioner| Step::Assign { provisioner }));
        }
        Some(owner) => {
            let owner = &state.provisioners[owner];
            if owner.read < state.topic.records.len() {
                steps.push(Step::Read);
            }
            if guards::committable(owner.read, &owner.done, protocol.guards) > 0 {
                steps.push(Step::Commit);
            }
        }
    }
    for desk in desks(state) {
        for source in SOURCES {
            match job(state, desk, source) {
                Some(Job { ended: Some(_), .. }) => steps.push(Step::Settle { desk, source }),
                Some(_) => steps.push(Step::Carry { desk, source }),
                None => {}
            }
        }
    }
    // Anybody drains a cluster, not only the owner of the partition. A claim keeps others away only while its lease lasts, so
    // two may hold the same instruction.
    let idle = |desk: &Desk| {
        state.postgres.rows[desk.database].parked.is_some() && job(state, *desk, Source::Parked).is_none()
    };
    if !state.away {
        steps.extend(desks(state).into_iter().filter(idle).map(Step::Drain));
    }
}

pub(super) fn chance(state: &State, steps: &mut Vec<Step>) {
    for provisioner in 0..state.provisioners.len() {
        if state.left.crashes > 0 && state.provisioners[provisioner].is_busy() {
            steps.push(Step::Crash { provisioner });
        }
        if state.left.rebalances > 0 && state.topic.owner.is_some_and(|owner| owner != provisioner) {
            steps.push(Step::Rebalance { provisioner });
        }
    }
    if state.left.timeouts > 0 && !state.away {
        for desk in desks(state) {
            let sent = |source: &Source| job(state, desk, *source).is_some_and(|job| job.ended.is_none());
            steps.extend(SOURCES.into_iter().filter(sent).map(|source| Step::TimeOut { desk, source }));
        }
    }
    if state.left.duplicates > 0 {
        let open = |index: &usize| !state.postgres.rows[state.history[*index].database].closed;
        steps.extend((0..state.history.len()).filter(open).map(|index| Step::Duplicate { index }));
    }
    let unread =
        state.topic.owner.is_some_and(|owner| state.provisioners[owner].read < state.topic.records.len());
    if state.left.losses > 0 && unread {
        steps.push(Step::LoseInstruction);
    }
}

pub(super) fn apply(protocol: &Protocol, state: &mut State, step: &Step) {
    match step {
        Step::Assign { provisioner } => state.topic.owner = Some(*provisioner),
        Step::Rebalance { provisioner } => {
            state.left.rebalances -= 1;
            if let Some(owner) = state.topic.owner.replace(*provisioner) {
                state.provisioners[owner].lose_partition();
            }
        }
        Step::Read => read(protocol, state),
        Step::Commit => commit(protocol, state),
        Step::Drain(desk) => {
            let parked = state.postgres.rows[desk.database].parked;
            let job = parked.map(|instruction| Job { instruction, offset: None, ended: None });
            state.provisioners[desk.provisioner].drains[desk.database] = job;
        }
        Step::Carry { desk, source } => {
            let Some(job) = job(state, *desk, *source) else { return };
            let ended =
                if state.away { Ended::Park } else { cluster::admit(protocol, state, &job.instruction) };
            put(state, *desk, *source, Some(Job { ended: Some(ended), ..job }));
        }
        Step::TimeOut { desk, source } => {
            state.left.timeouts -= 1;
            let Some(job) = job(state, *desk, *source) else { return };
            state.late.insert(Late::Apply(job.instruction));
            put(state, *desk, *source, Some(Job { ended: Some(Ended::Park), ..job }));
        }
        Step::Settle { desk, source } => settle(protocol, state, *desk, *source),
        Step::Crash { provisioner } => crash(state, *provisioner),
        Step::Duplicate { index } => {
            state.left.duplicates -= 1;
            state.topic.records.push(state.history[*index]);
        }
        Step::LoseInstruction => {
            state.left.losses -= 1;
            state.topic.records.pop();
        }
        _ => {}
    }
}

/// A record enters its lane; of those that wait there the newest stays, as in bus/src/consumer/engine.rs.
fn read(protocol: &Protocol, state: &mut State) {
    let Some(owner) = state.topic.owner else { return };
    let provisioner = &mut state.provisioners[owner];
    let offset = provisioner.read;
    let Some(instruction) = state.topic.records.get(offset).copied() else { return };
    provisioner.read += 1;
    if !protocol.guards.hold(Guard::AcknowledgeAfterEffect) {
        provisioner.done.insert(offset);
    }
    let arriving = Job { instruction, offset: Some(offset), ended: None };
    let lane = &mut provisioner.lanes[instruction.database];
    match (lane.running, lane.waiting) {
        (None, _) => lane.running = Some(arriving),
        (Some(_), None) => lane.waiting = Some(arriving),
        (Some(_), Some(waiting)) => {
            let goes = guards::arriving_goes(&waiting.instruction, &instruction, protocol.guards);
            let (stays, superseded) = if goes { (waiting, arriving) } else { (arriving, waiting) };
            lane.waiting = Some(stays);
            provisioner.done.extend(superseded.offset);
        }
    }
}

/// What became of a job is made durable; only then is its record finished: provisioner/src/work.rs and drain.rs.
fn settle(protocol: &Protocol, state: &mut State, desk: Desk, source: Source) {
    let Some(Job { instruction, offset, ended: Some(ended) }) = job(state, desk, source) else { return };
    let row = &mut state.postgres.rows[desk.database];
    match (source, ended) {
        (Source::Topic, Ended::Park) => {
            row.parked = Some(guards::park(row.parked, instruction, protocol.guards));
        }
        (Source::Parked, Ended::Applied | Ended::Superseded | Ended::Refused) => {
            row.parked = guards::unpark(row.parked, instruction.position, protocol.guards);
        }
        _ => {}
    }
    match ended {
        Ended::Applied => tell(protocol, state, Said::Applied(instruction)),
        Ended::Refused => tell(protocol, state, Said::Refused(instruction)),
        // What these say, the next observation says too.
        Ended::Superseded | Ended::Park => {}
    }
    let provisioner = &mut state.provisioners[desk.provisioner];
    provisioner.done.extend(offset);
    let next = match source {
        Source::Topic => provisioner.lanes[desk.database].waiting.take(),
        Source::Parked => None,
    };
    put(state, desk, source, next);
}

fn commit(protocol: &Protocol, state: &mut State) {
    let Some(owner) = state.topic.owner else { return };
    let provisioner = &mut state.provisioners[owner];
    let count = guards::committable(provisioner.read, &provisioner.done, protocol.guards);
    provisioner.read -= count;
    provisioner.done = provisioner.done.iter().filter_map(|offset| offset.checked_sub(count)).collect();
    for lane in &mut provisioner.lanes {
        for job in [&mut lane.running, &mut lane.waiting].into_iter().flatten() {
            job.offset = job.offset.and_then(|offset| offset.checked_sub(count));
        }
    }
    state.topic.records.drain(..count);
}

fn crash(state: &mut State, index: usize) {
    state.left.crashes -= 1;
    for source in SOURCES {
        for database in 0..state.resources.len() {
            let sent = job(state, Desk { provisioner: index, database }, source);
            let sent = sent.filter(|job| job.ended.is_none() && !state.away);
            state.late.extend(sent.map(|job| Late::Apply(job.instruction)));
        }
    }
    state.provisioners[index] = Provisioner::new(state.resources.len());
    if state.topic.owner == Some(index) {
        state.topic.owner = None;
    }
}

fn desks(state: &State) -> Vec<Desk> {
    let databases = state.resources.len();
    let all = (0..state.provisioners.len() * databases)
        .map(|index| Desk { provisioner: index / databases, database: index % databases });
    all.collect()
}

fn job(state: &State, desk: Desk, source: Source) -> Option<Job> {
    let provisioner = &state.provisioners[desk.provisioner];
    match source {
        Source::Topic => provisioner.lanes[desk.database].running,
        Source::Parked => provisioner.drains[desk.database],
    }
}

fn put(state: &mut State, desk: Desk, source: Source, job: Option<Job>) {
    let provisioner = &mut state.provisioners[desk.provisioner];
    match source {
        Source::Topic => provisioner.lanes[desk.database].running = job,
        Source::Parked => provisioner.drains[desk.database] = job,
    }
}

impl Provisioner {
    /// Whether it has anything to forget.
    fn is_busy(&self) -> bool {
        let drains = self.drains.iter().any(Option::is_some);
        self.read > 0 || drains || self.lanes.iter().any(|lane| *lane != Lane::default())
    }

    /// What waits is dropped; what runs goes on, but its record counts no more.
    fn lose_partition(&mut self) {
        self.read = 0;
        self.done.clear();
        for lane in &mut self.lanes {
            lane.waiting = None;
            lane.running = lane.running.map(|job| Job { offset: None, ..job });
        }
    }
}
