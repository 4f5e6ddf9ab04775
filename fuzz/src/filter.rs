//! Body for filter expressions: for any text and frame, nothing panics and all forms of a filter agree.

use filter::{Filter, FilterSet};

/// The first line is an expression, the rest a frame.
pub fn expression(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (text, frame) = (String::from_utf8_lossy(&input[..end]), input.get(end + 1..).unwrap_or_default());
    match Filter::compile(&text) {
        Ok(filter) => {
            let matches = filter.matches(frame);
            assert!(!matches || !filter.matches_nothing());
            // The same filter twice: the first one counts.
            let set = FilterSet::new([&filter, &filter]);
            assert_eq!(set.first_match(frame), matches.then_some(0));
            if let Ok(body) = set.to_ebpf(&[1, 2], 0, 4096) {
                assert!(body.len() <= 4096);
            }
            let twice = filter.and(&filter);
            assert_eq!(twice.matches(frame), matches);
            let _ = twice.tuple_rules();
        }
        Err(error) => {
            assert!(error.at.end <= text.len(), "{error:?}");
            let _ = (error.to_string(), error.marked(&text));
        }
    }
}
