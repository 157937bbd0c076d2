//! Everything about one dead letter, for reading.

use std::fmt::Write;

use jiff::Timestamp;
use wire::http::WholeLetter;
use wire::http::aside::LetterInstruction;

use super::aside::{became, name, newest, position};
use super::describe::{inner, line};
use super::text::{age, clean, or_none};

/// Everything about one dead letter.
pub fn describe(whole: &WholeLetter, now: Timestamp) -> String {
    let (mut text, letter) = (String::new(), &whole.letter);
    line(&mut text, "Id", &letter.id.to_string());
    line(&mut text, "Database", &name(letter.database.as_ref(), letter.database_id));
    line(&mut text, "Database id", &letter.database_id.map(|id| id.to_string()).unwrap_or_default());
    line(&mut text, "Tenant", letter.database.as_ref().map_or("", |about| &about.tenant));
    line(&mut text, "Cluster", letter.cluster.as_deref().unwrap_or_default());
    line(&mut text, "Since", &format!("{} ({} ago)", letter.received_at, age(letter.received_at, now)));
    line(&mut text, "Reason", &format!("{}: {}", letter.code, letter.message));
    line(&mut text, "Letter's state", &position(letter.epoch.zip(letter.seq)));
    line(&mut text, "Newest state", &newest(letter.database.as_ref()));
    if let Some(settled) = &letter.settled {
        line(&mut text, "Settled", &became(settled, now));
        line(&mut text, "Settled because", settled.reason.as_deref().unwrap_or_default());
    } else {
        line(&mut text, "To do", &letter.advice);
        let verdict = if whole.redrive.possible { "would be" } else { "refused," };
        let redrive = format!("{verdict} {}: {}", whole.redrive.outcome, whole.redrive.message);
        line(&mut text, "Redrive", &redrive);
    }
    let place = format!("{}, partition {}, offset {}", letter.topic, letter.partition, letter.offset);
    line(&mut text, "Record", &place);
    line(&mut text, "Set aside by", &letter.consumer);
    line(&mut text, "Key", whole.key.as_deref().unwrap_or_default());
    line(&mut text, "Content", &format!("{} bytes (as they are: -o json, payload_hex)", letter.size));
    if let Some(said) = &whole.instruction {
        instruction(&mut text, said, now);
    }
    let _ = writeln!(text, "Headers:");
    for header in &whole.headers {
        let _ = writeln!(text, "  {}: {}", clean(&header.name), or_none(&header.value));
    }
    text
}

fn instruction(text: &mut String, said: &LetterInstruction, now: Timestamp) {
    let _ = writeln!(text, "What it says:");
    inner(text, "Database", &format!("{} ({})", said.name, said.database_id));
    inner(text, "Tenant", &said.tenant);
    inner(text, "Cluster", &said.cluster);
    inner(text, "Run state", &said.run_state);
    inner(text, "State", &position(Some((said.epoch, said.seq))));
    inner(text, "Operation", &said.operation_id.to_string());
    inner(text, "Asked for", &format!("{} ago by {}", age(said.issued_at, now), or_none(&said.actor)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn an_open_letter() {
        insta::assert_snapshot!(describe(&fixture::whole_letter(), fixture::now()));
    }

    #[test]
    fn a_settled_letter_that_nobody_can_read() {
        let mut whole = fixture::whole_letter();
        whole.letter.settled = Some(fixture::settled());
        (whole.letter.database, whole.instruction) = (None, None);
        insta::assert_snapshot!(describe(&whole, fixture::now()));
    }

    #[test]
    fn a_refusal_is_told_before_anybody_tries() {
        let mut whole = fixture::whole_letter();
        whole.redrive.possible = false;
        "purged".clone_into(&mut whole.redrive.outcome);
        assert!(describe(&whole, fixture::now()).contains("Redrive:          refused, purged: "));
    }

    #[test]
    fn no_text_of_others_reaches_the_terminal_as_a_command() {
        let mut whole = fixture::whole_letter();
        let evil = || "\x1b]0;title\x07".to_owned();
        (whole.letter.message, whole.letter.topic, whole.key) = (evil(), evil(), Some(evil()));
        (whole.headers[0].name, whole.headers[1].value) = (evil(), evil());
        whole.instruction.as_mut().unwrap().actor = evil();
        let text = describe(&whole, fixture::now());
        assert!(!text.contains('\x1b') && !text.contains('\x07'));
    }
}
