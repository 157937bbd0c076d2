//! Offsets that are finished beyond the committed one, as text in the commit's metadata, so that whoever reads the
//! partition next need not deal with their records again. Pure.
//!
//! The text is a letter for the form, then base64 of a checksum, the committed offset and the offsets themselves: `r` as
//! runs (how many are open, how many are finished, and so on), `b` as a bit for each offset, whichever tells more, or is
//! shorter. *Invariant:* what does not fit is left out, and what cannot be read, in whole, is nothing: a record may be
//! dealt with again, but is never passed over by mistake.

use std::collections::VecDeque;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;

/// The longest text. Brokers take 4096 bytes (`offset.metadata.max.bytes`).
pub const LONGEST: usize = 3_500;
/// Bytes that fit into it, without the letter.
const BYTES: usize = (LONGEST - 1) / 4 * 3;
/// Of these, for checksum and committed offset.
const HEAD: usize = 4 + 10;

const RUNS: char = 'r';
const BITS: char = 'b';

/// The text for offsets finished at or after `from`: stretches in order that do not touch. Empty if there are none.
pub fn encode(from: i64, finished: &[Range<i64>]) -> String {
    let room = BYTES - HEAD;
    let (runs, bits) = (runs(from, finished, room), bits(from, finished, room));
    let shorter = (runs.told, bits.bytes.len()) >= (bits.told, runs.bytes.len());
    let (letter, body) = if shorter { (RUNS, runs) } else { (BITS, bits) };
    if body.told == 0 {
        return String::new();
    }
    let mut bytes = Vec::with_capacity(HEAD + body.bytes.len());
    number(&mut bytes, from.unsigned_abs());
    bytes.extend(body.bytes);
    let mut all = checksum(letter, &bytes).to_le_bytes().to_vec();
    all.extend(bytes);
    format!("{letter}{}", BASE64.encode(all))
}

/// The stretches that a text tells, if it is one of ours and was written with this committed offset.
pub fn decode(text: &str, from: i64) -> Option<VecDeque<Range<i64>>> {
    let mut letters = text.chars();
    let letter = letters.next()?;
    let all = BASE64.decode(letters.as_str()).ok()?;
    let (sum, bytes) = all.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*sum) != checksum(letter, bytes) {
        return None;
    }
    let mut rest = bytes;
    if i64::try_from(take_number(&mut rest)?).ok()? != from {
        return None;
    }
    match letter {
        RUNS => read_runs(rest, from),
        BITS => read_bits(rest, from),
        _ => None,
    }
}

/// Offsets told in a form, as far as there was room.
struct Body {
    bytes: Vec<u8>,
    /// How many offsets it tells to be finished.
    told: i64,
}

fn runs(from: i64, finished: &[Range<i64>], room: usize) -> Body {
    let mut body = Body { bytes: Vec::new(), told: 0 };
    let mut end = from;
    for stretch in finished {
        let before = body.bytes.len();
        number(&mut body.bytes, stretch.start.abs_diff(end));
        number(&mut body.bytes, stretch.end.abs_diff(stretch.start));
        if body.bytes.len() > room {
            body.bytes.truncate(before);
            break;
        }
        body.told += stretch.end - stretch.start;
        end = stretch.end;
    }
    body
}

fn read_runs(mut bytes: &[u8], from: i64) -> Option<VecDeque<Range<i64>>> {
    let mut finished = VecDeque::new();
    let mut end = from;
    while !bytes.is_empty() {
        let start = end.checked_add_unsigned(take_number(&mut bytes)?)?;
        end = start.checked_add_unsigned(take_number(&mut bytes)?)?;
        finished.push_back(start..end);
    }
    Some(finished)
}

fn bits(from: i64, finished: &[Range<i64>], room: usize) -> Body {
    let mut body = Body { bytes: Vec::new(), told: 0 };
    for offset in finished.iter().flat_map(Clone::clone) {
        let at = usize::try_from(offset.abs_diff(from)).unwrap_or(usize::MAX);
        if at / 8 >= room {
            break;
        }
        body.bytes.resize(at / 8 + 1, 0);
        if let Some(byte) = body.bytes.get_mut(at / 8) {
            *byte |= 1 << (at % 8);
        }
        body.told += 1;
    }
    body
}

fn read_bits(bytes: &[u8], from: i64) -> Option<VecDeque<Range<i64>>> {
    let mut finished: VecDeque<Range<i64>> = VecDeque::new();
    for at in 0..bytes.len() * 8 {
        if bytes[at / 8] & (1 << (at % 8)) == 0 {
            continue;
        }
        let offset = from.checked_add(i64::try_from(at).ok()?)?;
        let next = offset.checked_add(1)?;
        match finished.back_mut().filter(|last| last.end == offset) {
            Some(last) => last.end = next,
            None => finished.push_back(offset..next),
        }
    }
    Some(finished)
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn number(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        let part = low << shift;
        if part >> shift != low {
            return None;
        }
        number |= part;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// FNV-1a: metadata that somebody else wrote, or that was cut off, is not taken for ours.
fn checksum(letter: char, bytes: &[u8]) -> u32 {
    let letter = [u8::try_from(letter).unwrap_or(0)];
    letter
        .iter()
        .chain(bytes)
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
