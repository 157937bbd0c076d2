//! Who leads, and for how long.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use runtime::Metrics;
use runtime::health::Readiness;
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::played::{self, Answer};
use crate::scope::Scope;

const LONG: Duration = Duration::from_mins(10);

#[test]
fn a_lease_tells_the_pod_and_no_two_processes_are_the_same() {
    for (pod, name) in [
        (Some("slipway-operator-5d9c-x7k2p"), "slipway-operator-5d9c-x7k2p"),
        (Some(""), "slipway-operator"),
        (None, "slipway-operator"),
    ] {
        let [one, other] = [identity(pod), identity(pod)];
        assert_eq!(one.split_once('_').map(|(before, _)| before), Some(name));
        assert_ne!(one, other, "one pod's container is started again");
    }
}

/// Whether a lease of this holder is taken or renewed by who calls himself "us", and has held it before that if he has `led`.
async fn is_had(holder: &'static str, led: bool) -> bool {
    let is_handed_on = Arc::new(AtomicBool::new(!led));
    let known = Arc::clone(&is_handed_on);
    let client = played::client(move |_, _| {
        let holder = if known.load(SeqCst) { holder } else { "us" };
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": names::OPERATOR, "namespace": "n", "resourceVersion": "7" },
            "spec": { "holderIdentity": holder },
        });
        Answer::Is(200, lease)
    });
    let mut candidate = Candidate {
        api: Api::namespaced(client, "n"),
        identity: "us".to_owned(),
        until: watch::channel(None).0,
        seen: None,
        term: None,
        led: false,
        watches: Watches::new(&Metrics::default(), &Readiness::default(), &Scope::All, String::new()),
    };
    if led {
        assert!(candidate.attempt().await.unwrap());
        is_handed_on.store(true, SeqCst);
    }
    candidate.attempt().await.unwrap()
}

#[tokio::test]
async fn who_has_led_leads_no_more_once_another_has_led_and_given_the_lease_back() {
    for (holder, led, had) in [
        ("", false, true),
        ("us", false, true),
        ("other", false, false),
        ("us", true, true),
        ("other", true, false),
        ("", true, false),
    ] {
        assert_eq!(is_had(holder, led).await, had, "{holder:?} {led}");
    }
}

fn from_now(left: Duration) -> Moment {
    Moment::now().after(left)
}

/// What is left of the lease, and who may renew or end it.
pub(crate) fn leading(left: Option<Duration>) -> (watch::Sender<Option<Moment>>, Leadership) {
    let (sender, until) = watch::channel(left.map(from_now));
    (sender, Leadership { until, now: Moment::now })
}

#[tokio::test]
async fn what_is_ready_is_not_done_after_the_end_of_the_lease() {
    let touched = Cell::new(false);
    for left in [None, Some(Duration::ZERO)] {
        let (_candidate, leadership) = leading(left);
        let work = std::future::ready(()).map(|()| touched.set(true));
        assert_eq!(leadership.while_leading(work).await, None, "{left:?}");
    }
    assert!(!touched.get());
    let (_candidate, leadership) = leading(Some(LONG));
    assert_eq!(leadership.while_leading(async { 7 }).await, Some(7));
}

/// Keeps the thread until the lease has ended.
fn halt(leadership: &Leadership) {
    while !leadership.remaining().is_zero() {
        std::hint::spin_loop();
    }
}

#[tokio::test]
async fn a_process_that_slept_through_its_lease_goes_no_further() {
    let (_candidate, leadership) = leading(Some(Duration::from_millis(30)));
    let further = Cell::new(false);
    let work = async {
        // Halted: no timer and no other task of the process runs meanwhile.
        halt(&leadership);
        tokio::task::yield_now().await;
        further.set(true);
    };
    assert_eq!(leadership.while_leading(work).await, None);
    assert!(!further.get());
}

thread_local! {
    /// For how long the machine was suspended, as far as a test plays that.
    static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn with_suspension() -> Moment {
    from_now(SUSPENDED.get())
}

#[tokio::test]
async fn a_process_whose_machine_was_suspended_through_its_lease_goes_no_further_although_no_timer_ran() {
    let (candidate, leadership) = leading(Some(LONG));
    let leadership = Leadership { now: with_suspension, ..leadership };
    let further = Cell::new(false);
    let work = async {
        SUSPENDED.set(LONG);
        tokio::task::yield_now().await;
        further.set(true);
    };
    assert_eq!(leadership.while_leading(work).await, None);
    assert!(!further.get() && leadership.remaining().is_zero());
    // It leads again once it has renewed the lease, and is suspended for less than that lasts.
    candidate.send_replace(Some(with_suspension().after(LONG)));
    let work = async {
        SUSPENDED.set(LONG + LONG / 2);
        tokio::task::yield_now().await;
    };
    assert_eq!(leadership.while_leading(work).await, Some(()));
    assert!(leadership.remaining() <= LONG / 2);
}

#[tokio::test]
async fn who_waits_for_the_end_of_a_lease_is_told_at_once_when_it_has_passed_during_a_suspension() {
    let (_candidate, leadership) = leading(Some(LONG));
    let leadership = Leadership { now: with_suspension, ..leadership };
    SUSPENDED.set(LONG);
    assert_eq!(leadership.while_leading(std::future::pending::<()>()).await, None);
    leadership.ended().await;
}

/// A change that is sent once it may be.
async fn change(
    turn: oneshot::Receiver<()>,
    sent: Arc<AtomicBool>,
) -> Result<cloud::DnsChange, cloud::Error> {
    turn.await.unwrap();
    sent.store(true, SeqCst);
    Ok(cloud::DnsChange { id: "C1".into(), state: cloud::DnsChangeState::Pending })
}

#[tokio::test]
async fn a_change_of_names_is_not_sent_once_another_process_leads() {
    let sent = Arc::<AtomicBool>::default();
    let (candidate, leadership) = leading(Some(LONG));
    let within = leadership.within();
    let (turn, waits) = oneshot::channel();
    let begun = tokio::spawn(within(change(waits, Arc::clone(&sent)).boxed()));
    tokio::task::yield_now().await;
    candidate.send_replace(None);
    let ended = tokio::time::timeout(Duration::from_secs(30), begun).await.expect("given up");
    assert!(ended.unwrap().unwrap_err().outcome_unknown());
    assert!(turn.send(()).is_err() && !sent.load(SeqCst), "given up");
    candidate.send_replace(Some(from_now(LONG)));
    let (turn, waits) = oneshot::channel();
    turn.send(()).unwrap();
    assert!(within(change(waits, Arc::clone(&sent)).boxed()).await.is_ok() && sent.load(SeqCst));
}

#[tokio::test]
async fn who_waits_hears_of_the_loss_and_of_renewals() {
    const FIRST: Duration = Duration::from_secs(5);
    let (candidate, leadership) = leading(Some(FIRST));
    let mut waiting = pin!(leadership.while_leading(std::future::pending::<()>()));
    assert!(futures::poll!(&mut waiting).is_pending());
    candidate.send_replace(Some(from_now(LONG)));
    let past_the_first = FIRST + Duration::from_millis(400);
    let renewed = tokio::time::timeout(past_the_first, &mut waiting).await;
    assert!(renewed.is_err(), "it was renewed");
    candidate.send_replace(None);
    assert_eq!(waiting.await, None);
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_by_the_clock() {
    let (_candidate, leadership) = leading(Some(Duration::from_millis(50)));
    assert_eq!(leadership.while_leading(std::future::pending::<()>()).await, None);
}
