//! An expression's words. Tokens follow libpcap: the longest match wins,
//! and of equally long ones a keyword before an address before a number before a name.

use std::{net::Ipv6Addr, ops::Range};

use crate::error::FilterError;

mod constants;

pub(crate) use constants::keywords;

/// One word and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) at: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word of the language, by its main spelling.
    Word(&'static str),
    /// An operator or a bracket.
    Sign(&'static str),
    Number(u32),
    /// Two to four numbers with dots between; the bits say how many.
    Dotted(Dotted),
    Ipv6(Ipv6Addr),
    Mac([u8; 6]),
    /// Anything else that looks like a name; a backslash before a keyword makes it a name.
    Name(String),
}

/// The number of an IPv4 network as written: `10.1` is 0x0a01 in 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dotted {
    pub(crate) value: u32,
    pub(crate) bits: u32,
    /// The first two numbers as written: a DECnet address is an area and a node.
    pub(crate) pair: (u32, u32),
}

/// Longest first.
const SIGNS: [&str; 25] = [
    "&&", "||", ">=", "<=", "!=", "==", "<<", ">>", "+", "-", "*", "/", "%", ":", "[", "]", "!", "<", ">",
    "(", ")", "&", "|", "^", "=",
];

/// The words of an expression.
pub(crate) fn words(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if matches!(first, ' ' | '\t' | '\r' | '\n') {
            at += 1;
            continue;
        }
        let (kind, len) = word(&text[at..], at)?;
        tokens.push(Token { kind, at: at..at + len });
        at += len;
    }
    Ok(tokens)
}

fn word(text: &str, start: usize) -> Result<(Kind, usize), FilterError> {
    if let Some(rest) = text.strip_prefix('\\') {
        let len = rest.find([' ', '!', '(', ')', '\n', '\t', '\r']).unwrap_or(rest.len());
        if len == 0 {
            return Err(FilterError::syntax(start..start + 1, "nothing follows the backslash"));
        }
        return Ok((Kind::Name(rest[..len].to_owned()), len + 1));
    }
    let name = name_len(text);
    let (mac, mac_len) = mac(text).unzip();
    let (v6, v6_len) = ipv6(text).unzip();
    let (mac_len, v6_len) = (mac_len.unwrap_or(0), v6_len.unwrap_or(0));
    let dotted_len = dotted_len(text);
    let number_len = number_len(text);
    let longest = name.max(mac_len).max(v6_len).max(dotted_len).max(number_len);
    if longest == 0 {
        return sign(text, start);
    }
    let at = start..start + longest;
    let keyword = constants::keyword(&text[..longest]);
    let kind = if let (Some(word), true) = (keyword, name == longest) {
        Kind::Word(word)
    } else if let (Some(address), true) = (mac, mac_len == longest) {
        Kind::Mac(address)
    } else if number_len == longest {
        Kind::Number(number(&text[..longest], &at)?)
    } else if dotted_len == longest {
        Kind::Dotted(dotted(&text[..longest], &at)?)
    } else if let (Some(address), true) = (v6, v6_len == longest) {
        Kind::Ipv6(address)
    } else if let Some((_, value)) = constants::NUMBERS.iter().find(|(name, _)| *name == &text[..longest]) {
        Kind::Number(*value)
    } else {
        Kind::Name(text[..longest].to_owned())
    };
    Ok((kind, longest))
}

fn sign(text: &str, start: usize) -> Result<(Kind, usize), FilterError> {
    match SIGNS.iter().find(|sign| text.starts_with(**sign)) {
        Some(&"&&") => Ok((Kind::Word("and"), 2)),
        Some(&"||") => Ok((Kind::Word("or"), 2)),
        Some(&"!") => Ok((Kind::Word("not"), 1)),
        Some(&"==") => Ok((Kind::Sign("="), 2)),
        Some(sign) => Ok((Kind::Sign(sign), sign.len())),
        None => {
            let odd = text.chars().next().unwrap_or_default();
            let error = FilterError::syntax(start..start + odd.len_utf8(), format!("unexpected '{odd}'"));
            Err(match odd {
                '"' | '\'' | '`' => error.hint("write names without quotes"),
                '$' => error.hint("this is an ARCnet address; did you mean a shell variable?"),
                ',' => error.hint("join alternatives with 'or': port 53 or 443"),
                _ => error,
            })
        }
    }
}

/// Letters and digits, with `-`, `_` and `.` inside and `.` at the end.
fn name_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    if !bytes.first().is_some_and(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let run = bytes.iter().take_while(|byte| inside(byte)).count();
    let end = bytes[..run].iter().rposition(|byte| !matches!(byte, b'-' | b'_'));
    end.map_or(1, |last| last + 1)
}

fn number_len(text: &str) -> usize {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex.map(|rest| rest.bytes().take_while(u8::is_ascii_hexdigit).count()) {
        Some(more) if more > 0 => 2 + more,
        _ => digits,
    }
}

fn number(text: &str, at: &Range<usize>) -> Result<u32, FilterError> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u32::from_str_radix(digits, radix).map_err(|_| {
        if radix == 8 && digits.contains(['8', '9']) {
            return FilterError::syntax(
                at.clone(),
                format!("{text} is not a number: a leading 0 means octal"),
            );
        }
        FilterError::meaning(at.clone(), format!("{text} does not fit 32 bits"))
    })
}

/// Two to four numbers with dots between.
fn dotted_len(text: &str) -> usize {
    let (mut len, mut parts) = (0, 0);
    loop {
        let more = number_len(&text[len..]);
        if more == 0 {
            // A dot without a number after it is not part of the address.
            len = len.saturating_sub(1);
            break;
        }
        (len, parts) = (len + more, parts + 1);
        if parts == 4 || text.as_bytes().get(len) != Some(&b'.') {
            break;
        }
        len += 1;
    }
    if parts >= 2 { len } else { 0 }
}

fn dotted(text: &str, at: &Range<usize>) -> Result<Dotted, FilterError> {
    let (mut value, mut bits, mut pair) = (0, 0, [0; 2]);
    for (index, part) in text.split('.').enumerate() {
        // As in C's inet_aton; but a leading 0 stays decimal, as in libpcap.
        let byte = match part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")) {
            Some(_) => None,
            None => part.parse::<u32>().ok(),
        };
        let byte = byte.filter(|byte| *byte <= 255 || (text.matches('.').count() == 1 && *byte < 1024));
        let Some(byte) = byte else {
            return Err(FilterError::meaning(at.clone(), format!("'{text}' is not an IPv4 address")));
        };
        if let Some(slot) = pair.get_mut(index) {
            *slot = byte;
        }
        (value, bits) = (value << 8 | byte & 0xff, bits + 8);
    }
    Ok(Dotted { value, bits, pair: (pair[0], pair[1]) })
}

fn mac(text: &str) -> Option<([u8; 6], usize)> {
    [b':', b'-', b'.'].into_iter().find_map(|between| six_bytes(text, between)).or_else(|| three_words(text))
}

/// `0:1:2:3:4:5`, one or two digits each.
fn six_bytes(text: &str, between: u8) -> Option<([u8; 6], usize)> {
    let (mut address, mut len) = ([0; 6], 0);
    for (index, byte) in address.iter_mut().enumerate() {
        if index > 0 {
            if text.as_bytes().get(len) != Some(&between) {
                return None;
            }
            len += 1;
        }
        let digits = text[len..].bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
        *byte = u8::from_str_radix(&text[len..len + digits], 16).ok()?;
        len += digits;
    }
    Some((address, len))
}

/// `0001.0203.0405` and `000102030405`.
fn three_words(text: &str) -> Option<([u8; 6], usize)> {
    let hex = |range: Range<usize>| {
        text.get(range).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    let (digits, len) = match (hex(0..4), text.get(4..5), hex(5..9), text.get(9..10), hex(10..14)) {
        (Some(a), Some("."), Some(b), Some("."), Some(c)) => (format!("{a}{b}{c}"), 14),
        _ => (hex(0..12)?.to_owned(), 12),
    };
    let bits = u64::from_str_radix(&digits, 16).ok()?;
    let mut address = [0; 6];
    address.copy_from_slice(&bits.to_be_bytes()[2..]);
    Some((address, len))
}

/// The longest prefix that is an IPv6 address: eight groups, or a `::`.
fn ipv6(text: &str) -> Option<(Ipv6Addr, usize)> {
    let run = text.bytes().take_while(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')).count();
    let run = run.min(45);
    (2..=run).rev().find_map(|len| Some((text[..len].parse().ok()?, len)))
}
