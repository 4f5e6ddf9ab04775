//! Mutators that keep the structure of an input: JSON stays JSON, TOML keeps its tables and lines, text keeps its
//! words. Plain changes of bytes follow now and then, so that broken syntax is tried too.

use fastrand::Rng;
use serde_json::{Map, Value};

/// What a target reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Bytes,
    /// Words separated by spaces.
    Words,
    /// The same, and a frame after a newline.
    WordsAndFrame,
    Json,
    Toml,
}

/// An input made from one or two others.
pub fn mutate(shape: Shape, seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| seeds.get(rng.usize(0..seeds.len().max(1))).cloned().unwrap_or_default();
    let (mut input, other) = (pick(rng), pick(rng));
    for _ in 0..=rng.usize(0..4) {
        input = match shape {
            Shape::Bytes => bytes(input, &other, rng),
            Shape::Words => words(&input, &other, rng),
            Shape::WordsAndFrame => words(&framed(input), &other, rng),
            Shape::Json => json(&input, &other, rng),
            Shape::Toml => toml(&input, &other, rng),
        };
    }
    if rng.u8(0..8) == 0 { bytes(input, &other, rng) } else { input }
}

const NUMBERS: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

fn bytes(mut input: Vec<u8>, other: &[u8], rng: &mut Rng) -> Vec<u8> {
    const LONGEST: usize = 64 << 10;
    let at = rng.usize(0..=input.len());
    let rest = input.len() - at;
    match rng.u8(0..7) {
        0 if rest > 0 => input[at] ^= 1 << rng.u8(0..8),
        1 if rest > 0 => input[at] = rng.u8(..),
        2 => input.truncate(at),
        3 => _ = input.drain(at..at + rng.usize(0..=rest.min(16))),
        4 => input.splice(at..at, (0..rng.usize(0..16)).map(|_| rng.u8(..))).for_each(drop),
        5 => {
            // Lengths and counts in files and messages have one to eight bytes, in either order.
            let (width, number) = (1 << rng.usize(0..4), NUMBERS[rng.usize(0..NUMBERS.len())]);
            let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
            let field = if rng.bool() { &little[..width] } else { &big[8 - width..] };
            let end = at + width.min(rest);
            input.splice(at..end, field.iter().copied()).for_each(drop);
        }
        _ => {
            let from = rng.usize(0..=other.len());
            input.truncate(at);
            input.extend(&other[from..]);
        }
    }
    input.truncate(LONGEST);
    input
}

fn words(input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let split = |input: &[u8]| {
        let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
        let words = String::from_utf8_lossy(&input[..end]).split_whitespace().map(str::to_owned).collect();
        (words, input[end..].to_vec())
    };
    let ((mut first, tail), (second, _)): ((Vec<String>, _), (Vec<String>, _)) = (split(input), split(other));
    let at = rng.usize(0..=first.len());
    match rng.u8(0..6) {
        0 if at < first.len() => _ = first.remove(at),
        1 if at < first.len() => first[at] = NUMBERS[rng.usize(0..NUMBERS.len())].to_string(),
        2 if at < first.len() => first.swap(at, 0),
        3 => first.insert(at, ["(", ")", "not", "and", "or"][rng.usize(0..5)].into()),
        4 if !second.is_empty() => first.insert(at, second[rng.usize(0..second.len())].clone()),
        _ => {
            first.truncate(at);
            first.extend(second.into_iter().skip(rng.usize(0..8)));
        }
    }
    let tail = if rng.u8(0..4) == 0 { bytes(tail.clone(), &tail, rng) } else { tail };
    first.truncate(200);
    [first.join(" ").into_bytes(), tail].concat()
}

/// With a UDP datagram over IPv4, unless it has a frame already.
fn framed(mut input: Vec<u8>) -> Vec<u8> {
    const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    const IPV4: [u8; 20] = [0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0xeb, 0xa6, 198, 18, 0, 1, 198, 19, 0, 1];
    const UDP: [u8; 12] = [0x10, 0, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
    if !input.contains(&b'\n') {
        input.push(b'\n');
        input.extend([&ETHERNET[..], &IPV4, &UDP].concat());
    }
    input
}

fn json(input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let Ok(mut tree) = serde_json::from_slice::<Value>(input) else {
        return bytes(input.to_vec(), other, rng);
    };
    let other = serde_json::from_slice::<Value>(other).unwrap_or(Value::Null);
    let nodes = count(&tree);
    let changed = node(&mut tree, &mut rng.usize(0..nodes));
    if let Some(changed) = changed {
        change(changed, &other, rng);
    }
    tree.to_string().into_bytes()
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn count(value: &Value) -> usize {
    1 + children(value).map(count).sum::<usize>()
}

/// The node with that number, in the order of reading.
fn node<'v>(value: &'v mut Value, left: &mut usize) -> Option<&'v mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    children.into_iter().find_map(|child| node(child, left))
}

fn change(value: &mut Value, other: &Value, rng: &mut Rng) {
    match value {
        Value::Object(fields) if rng.u8(0..4) > 0 => change_fields(fields, other, rng),
        Value::Array(items) if rng.u8(0..4) > 0 => {
            let at = rng.usize(0..=items.len());
            match rng.u8(0..4) {
                0 => items.truncate(at),
                1 if at < items.len() => _ = items.remove(at),
                2 if at < items.len() => items.push(items[at].clone()),
                _ => items.insert(at, leaf(rng)),
            }
        }
        Value::Number(_) if rng.u8(0..4) > 0 => *value = number(rng),
        Value::String(text) if rng.u8(0..4) > 0 => *text = string(text, rng),
        _ => {
            *value = match rng.u8(0..4) {
                0 => Value::Null,
                1 => any_node(other, rng),
                _ => leaf(rng),
            }
        }
    }
}

fn change_fields(fields: &mut Map<String, Value>, other: &Value, rng: &mut Rng) {
    let keys: Vec<String> = fields.keys().cloned().collect();
    let key = keys.get(rng.usize(0..keys.len().max(1))).cloned().unwrap_or_default();
    match rng.u8(0..5) {
        0 => _ = fields.remove(&key),
        1 => _ = fields.insert(key, Value::Null),
        2 => _ = fields.insert(key, any_node(other, rng)),
        3 => {
            let moved = fields.remove(&key).unwrap_or(Value::Null);
            fields.insert(keys.get(rng.usize(0..keys.len().max(1))).cloned().unwrap_or_default(), moved);
        }
        _ => _ = fields.insert(key, leaf(rng)),
    }
}

fn any_node(tree: &Value, rng: &mut Rng) -> Value {
    let mut tree = tree.clone();
    let nodes = count(&tree);
    node(&mut tree, &mut rng.usize(0..nodes)).cloned().unwrap_or(Value::Null)
}

fn leaf(rng: &mut Rng) -> Value {
    match rng.u8(0..6) {
        0 => Value::Bool(rng.bool()),
        1 => Value::Array(Vec::new()),
        2 => Value::Object(Map::new()),
        3 => string("", rng).into(),
        _ => number(rng),
    }
}

fn number(rng: &mut Rng) -> Value {
    match rng.u8(0..5) {
        0 => (-rng.i64(0..i64::MAX)).into(),
        1 => (f64::from(rng.i32(..)) * 10f64.powi(rng.i32(-320..300))).into(),
        2 => rng.u64(0..100).into(),
        _ => NUMBERS[rng.usize(0..NUMBERS.len())].into(),
    }
}

fn string(text: &str, rng: &mut Rng) -> String {
    const TEXTS: [&str; 10] =
        ["", " ", "\u{1b}[31m", "é→\u{202e}", "0", "-1", "1e999", "max", "../x", "<script>"];
    match rng.u8(0..4) {
        0 if text.len() < 4096 => text.repeat(rng.usize(0..40)),
        1 => text.chars().rev().collect(),
        2 => format!("{text}{}", TEXTS[rng.usize(0..TEXTS.len())]),
        _ => TEXTS[rng.usize(0..TEXTS.len())].into(),
    }
}

/// Lines stay whole: `key = value` with another value or key, tables moved, left out or given twice.
fn toml(input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let lines = |text: &[u8]| String::from_utf8_lossy(text).lines().map(str::to_owned).collect::<Vec<_>>();
    let (mut first, second) = (lines(input), lines(other));
    if first.is_empty() {
        return other.to_vec();
    }
    let (at, to) = (rng.usize(0..first.len()), rng.usize(0..first.len()));
    let pair = |line: &str| line.split_once(" = ").map(|(key, value)| (key.to_owned(), value.to_owned()));
    match rng.u8(0..7) {
        0 => _ = first.remove(at),
        1 => first.swap(at, to),
        2 => first.insert(to, first[at].clone()),
        3 if !second.is_empty() => first.insert(to, second[rng.usize(0..second.len())].clone()),
        4 => {
            if let (Some((key, _)), Some((_, value))) = (pair(&first[at]), pair(&first[to])) {
                first[at] = format!("{key} = {value}");
            }
        }
        _ => {
            if let Some((key, value)) = pair(&first[at]) {
                first[at] = format!("{key} = {}", toml_value(&value, rng));
            }
        }
    }
    first.truncate(400);
    first.join("\n").into_bytes()
}

fn toml_value(value: &str, rng: &mut Rng) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    match rng.u8(0..6) {
        0 => format!("[{value}]"),
        1 => format!("[{value}, {value}]"),
        2 => value.trim_matches(['[', ']']).to_owned(),
        3 => quoted(&string(value.trim_matches('"'), rng)),
        4 => rng.bool().to_string(),
        _ => number(rng).to_string(),
    }
}
