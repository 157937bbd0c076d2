//! Dead letters: list, look at, redrive, discard. What comes of it is the API's to decide: it is asked first, and what it
//! would do is shown before it is asked to do it.

use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, Subcommand};
use uuid::Uuid;
use wire::http::{DeadLetterList, Intervention, SettledLetter};

use crate::cli::Format;
use crate::client::Client;
use crate::client::aside::{Verb, Which, letter_id};
use crate::error::Error;
use crate::noun::find::Narrow;
use crate::output::Output;
use crate::render;
use crate::session::{REQUEST, Session};

/// What can be done with dead letters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List records that cannot be understood or carried out, the latest first
    #[command(visible_alias = "ls")]
    List(List),
    /// Show everything about a dead letter: the record, the reason, and what a redrive would come to
    Describe(Describe),
    /// Have the newest state of each letter's database published again; the letter itself is never sent
    Redrive(Act),
    /// Give letters up: nothing is sent, they are kept with the reason
    Discard(Act),
}

/// `dead-letters list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway dead-letters list
  slipway dead-letters list --cluster eu-west-1 --code invalid
  slipway dead-letters list --database trades --settled -o wide
  slipway dead-letters list -o name | xargs slipway dead-letters redrive --dry-run")]
pub struct List {
    #[command(flatten)]
    narrow: Narrow,
    /// Those too that are settled: superseded, redriven or discarded
    #[arg(long)]
    settled: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// `dead-letters describe`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway dead-letters describe 12
  slipway dead-letters describe 12 -o json | jq -r .payload_hex | xxd -r -p > record")]
pub struct Describe {
    /// Id
    #[arg(value_name = "ID")]
    letter: String,
}

/// `dead-letters redrive` and `dead-letters discard`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway dead-letters redrive 12 --dry-run
  slipway dead-letters redrive 12 13 --reason 'INC-42: the definition was mended'
  slipway dead-letters discard 14 --reason 'INC-43: written by a test' --yes

What would be done is shown first, and asked for. Letters of databases of which nothing is left are
refused: nothing comes back. Who did it and why is kept. With several letters each is dealt with on
its own; the exit code is that of the first refusal.")]
pub struct Act {
    /// Ids
    #[arg(required = true, value_name = "ID")]
    letters: Vec<String>,
    /// Why, for those who look later
    #[arg(
        long,
        value_name = "TEXT",
        required_unless_present = "dry_run",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Key under which the API does this once, however often it is asked [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Does what is asked.
pub async fn run(session: &Session, command: Command) -> Result<(), Error> {
    match command {
        Command::List(command) => list(session, command).await,
        Command::Describe(command) => describe(session, &command).await,
        Command::Redrive(command) => act(session, Verb::Redrive, command).await,
        Command::Discard(command) => act(session, Verb::Discard, command).await,
    }
}

async fn list(session: &Session, command: List) -> Result<(), Error> {
    let List { narrow, settled, limit } = command;
    let client = session.client(REQUEST)?;
    let which = Which { over: settled, ..narrow.which(&client).await? };
    let dead_letters = client.dead_letters(&which, limit as usize).await?;
    if dead_letters.is_empty() {
        session.output.hint("no dead letters");
        if matches!(session.output.format, Format::Table | Format::Wide | Format::Name) {
            return Ok(());
        }
    } else if dead_letters.len() == limit as usize {
        session.output.hint(&format!("the latest {limit}; there may be more: --limit"));
    }
    let list = DeadLetterList { dead_letters, next_cursor: None };
    session.output.show(
        &list,
        |wide| render::aside::letters(&list.dead_letters, session.now, wide),
        || list.dead_letters.iter().map(render::aside::letter_name).collect(),
    )
}

async fn describe(session: &Session, command: &Describe) -> Result<(), Error> {
    let letter = session.client(REQUEST)?.dead_letter(letter_id(&command.letter)?).await?;
    session.output.show(
        &letter,
        |_| render::letter::describe(&letter, session.now),
        || vec![render::aside::letter_name(&letter.letter)],
    )
}

/// What became of the letters: those that went, the first refusal, and why the rest was not asked for.
#[derive(Debug, Default)]
struct Round {
    went: Vec<SettledLetter>,
    refused: Option<Error>,
    broken_off: Option<Error>,
}

async fn act(session: &Session, verb: Verb, command: Act) -> Result<(), Error> {
    let Act { letters, reason, dry_run, yes, idempotency_key } = command;
    let ids: Vec<i64> = letters.iter().map(|text| letter_id(text)).collect::<Result<_, _>>()?;
    let (mut client, output) = (session.client(REQUEST)?, session.output);
    let wish = |dry_run| Intervention { reason: reason.clone(), dry_run };
    let mut plan = round(&client, verb, &ids, &wish(true), None).await;
    if let Some(error) = plan.broken_off.take() {
        return Err(error);
    }
    if dry_run || plan.went.is_empty() {
        return finish(output, plan, letters.len());
    }
    client.prolong(agree(output, verb, &plan.went, yes).await?);
    let ids: Vec<i64> = plan.went.iter().map(|planned| planned.dead_letter.id).collect();
    let key = idempotency_key.unwrap_or_else(|| Uuid::now_v7().to_string());
    output.trace(&format!("idempotency key {key}"));
    let mut done = round(&client, verb, &ids, &wish(false), Some(&key)).await;
    done.refused = plan.refused.or(done.refused);
    finish(output, done, letters.len())
}

/// Asks for each. A refusal of one stops none of the others; that the API cannot be asked does.
async fn round(client: &Client, verb: Verb, ids: &[i64], wish: &Intervention, key: Option<&str>) -> Round {
    let mut round = Round::default();
    for id in ids {
        // Each letter is a request of its own, and so needs a key of its own.
        let key = key.map(|key| format!("{key}-{id}"));
        match client.settle_letter(*id, verb, wish, key.as_deref()).await {
            Ok(settled) => round.went.push(settled),
            Err(Error::Refused { request, problem }) if ids.len() > 1 && is_its_own(problem.status) => {
                client.output().warn(&format!("dead letter {id} is refused: {}", problem.detail));
                round.refused.get_or_insert(Error::Refused { request, problem });
            }
            Err(error) => {
                round.broken_off = Some(error);
                break;
            }
        }
    }
    round
}

/// Whether a refusal is about this letter, and not about whoever asks.
const fn is_its_own(status: u16) -> bool {
    matches!(status, 404 | 409)
}

/// Goes on only if that is agreed to. Answers how long somebody took to do so.
async fn agree(output: Output, verb: Verb, plan: &[SettledLetter], yes: bool) -> Result<Duration, Error> {
    let table = render::aside::settled(plan);
    let question = format!("{} these letters?", capital(verb.as_str()));
    if yes {
        output.progress(&table);
        Ok(Duration::ZERO)
    } else if std::io::stdin().is_terminal() {
        output.confirm(&format!("{table}\n{question}")).await?.ok_or(Error::Declined)
    } else {
        output.progress(&table);
        Err(Error::Usage {
            message: "nothing was done: nobody is there to be asked".to_owned(),
            hint: "add --yes if that is what you want".to_owned(),
        })
    }
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// Shows those that went; `asked` says whether a list was asked for.
fn finish(output: Output, round: Round, asked: usize) -> Result<(), Error> {
    let names =
        || round.went.iter().map(|settled| render::aside::letter_name(&settled.dead_letter)).collect();
    let table = |_| render::aside::settled(&round.went);
    match round.went.as_slice() {
        [] => {}
        [only] if asked == 1 => output.show(only, table, names)?,
        all => output.show(&all, table, names)?,
    }
    round.broken_off.or(round.refused).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::scripted::{Scripted, answer, header};
    use crate::exit;
    use crate::render::fixture;

    fn gone(id: i64) -> String {
        let dead_letter = wire::http::aside::DeadLetter { id, ..fixture::letter() };
        let (outcome, message) = ("redriven".to_owned(), "again".to_owned());
        let body = SettledLetter { dead_letter, outcome, message, dry_run: false };
        answer("202 Accepted", &[], &serde_json::to_string(&body).unwrap())
    }

    fn refused(status: &str, code: &str) -> String {
        let number = status.split(' ').next().unwrap_or_default();
        let body = format!(r#"{{"type":"/p","title":"Nothing was sent","status":{number},"code":"{code}"}}"#);
        answer(status, &[], &body)
    }

    async fn asked(answers: Vec<String>, ids: &[i64]) -> (Round, Vec<String>) {
        let server = Scripted::start(answers).await;
        let wish = Intervention { reason: "INC-1".to_owned(), dry_run: false };
        let client = server.client(Duration::from_secs(20));
        let round = round(&client, Verb::Redrive, ids, &wish, Some("key")).await;
        (round, server.asked().await)
    }

    #[tokio::test]
    async fn a_refusal_of_one_stops_none_of_the_others() {
        let answers = vec![gone(12), refused("409 Conflict", "purged"), String::new(), gone(14)];
        let (round, asked) = asked(answers, &[12, 13, 14]).await;
        let went: Vec<i64> = round.went.iter().map(|one| one.dead_letter.id).collect();
        assert_eq!(went, [12, 14]);
        assert_eq!(exit::code(&round.refused.unwrap()), exit::CONFLICT);
        for (request, id) in asked.iter().zip([12, 13, 14, 14]) {
            assert!(
                request.starts_with(&format!("POST /v1/dead-letters/{id}:redrive HTTP/1.1\r\n")),
                "{request}"
            );
            assert!(request.ends_with(r#"{"dry_run":false,"reason":"INC-1"}"#), "{request}");
            assert_eq!(
                header(request, "idempotency-key"),
                Some(format!("key-{id}")),
                "the same for every try"
            );
        }
    }

    #[tokio::test]
    async fn whoever_may_not_is_told_once() {
        let (round, asked) = asked(vec![refused("403 Forbidden", "forbidden")], &[12, 13]).await;
        assert_eq!(exit::code(&round.broken_off.unwrap()), exit::AUTH);
        assert_eq!(asked.len(), 1);
    }

    #[tokio::test]
    async fn what_went_before_it_was_broken_off_is_kept_to_be_told() {
        let answers = vec![gone(12), refused("401 Unauthorized", "unauthenticated")];
        let (round, asked) = asked(answers, &[12, 13, 14]).await;
        let went: Vec<i64> = round.went.iter().map(|one| one.dead_letter.id).collect();
        assert_eq!((went, asked.len()), (vec![12], 2));
        assert_eq!(exit::code(&round.broken_off.unwrap()), exit::AUTH);
    }

    #[test]
    fn names_as_printed_are_taken_back() {
        assert_eq!(capital(Verb::Redrive.as_str()), "Redrive");
        assert_eq!(letter_id("dead-letters/12").unwrap(), 12);
        assert_eq!(exit::code(&letter_id("x").unwrap_err()), exit::USAGE);
    }
}
