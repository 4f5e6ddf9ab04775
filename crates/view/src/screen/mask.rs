//! Addresses are replaced for screenshots.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::snapshot::Snapshot;

/// The snapshot without addresses.
pub(super) fn masked(mut snapshot: Snapshot) -> Snapshot {
    let Snapshot { title, verdict, waterfall, grid, tables, messages, .. } = &mut snapshot;
    let places = waterfall.iter_mut().flat_map(|waterfall| {
        let places = waterfall.places.iter_mut();
        places.flat_map(|place| [&mut place.name, &mut place.source]).chain([&mut waterfall.of])
    });
    let names = grid.iter_mut().flat_map(|grid| grid.rows.iter_mut().chain(&mut grid.columns));
    let cells = tables.iter_mut().flat_map(|table| table.rows.iter_mut().flatten());
    for text in [title, verdict].into_iter().chain(places).chain(names).chain(cells).chain(messages) {
        *text = mask(text);
    }
    snapshot
}

fn mask(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        masked += &mask_word(&rest[..end]);
        let next = rest[end..].find(is_part).map_or(rest.len(), |at| end + at);
        masked += &rest[end..next];
        rest = &rest[next..];
    }
    masked
}

/// A run of characters that addresses are made of; a port behind it stays.
fn mask_word(word: &str) -> String {
    let bare = word.trim_end_matches(['.', ':']);
    let is_mac = bare.split(':').count() == 6 && bare.split(':').all(|byte| byte.len() == 2);
    let (host, port) = match bare.rsplit_once(':') {
        Some((host, port)) if host.parse::<Ipv4Addr>().is_ok() => (host, format!(":{port}")),
        _ => (bare, String::new()),
    };
    let instead = if is_mac {
        "xx:xx:xx:xx:xx:xx"
    } else if host.parse::<Ipv4Addr>().is_ok() {
        "x.x.x.x"
    } else if host.parse::<Ipv6Addr>().is_ok() && host.len() > 2 {
        "x::x"
    } else {
        return word.to_owned();
    };
    format!("{instead}{port}{}", &word[bare.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_and_everything_else_stays() {
        for (text, expected) in [
            ("to 192.0.2.7:5001, 3 threads", "to x.x.x.x:5001, 3 threads"),
            ("[2001:db8::1]:9 joins", "[x::x]:9 joins"),
            ("aa:bb:cc:dd:ee:0f sent 1.5 at 12:30:01.", "xx:xx:xx:xx:xx:xx sent 1.5 at 12:30:01."),
            ("feed 0.211 Mpps → café ::", "feed 0.211 Mpps → café ::"),
        ] {
            assert_eq!(mask(text), expected);
        }
    }
}
