//! Packet sizes as a plan writes them: one, a mix, or a list to sweep.

use serde::{Deserialize, Serialize};
use wire::SizeMix;

use crate::load::PacketSize;

/// One size, or one trial for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum SizesFile {
    One(SizeFile),
    Several(Vec<SizeFile>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum SizeFile {
    Bytes(u32),
    Mix(String),
}

impl SizesFile {
    fn each(&self, name: &str, problems: &mut Vec<String>) -> Vec<SizeMix> {
        let sizes = match self {
            Self::One(size) => std::slice::from_ref(size),
            Self::Several(sizes) => sizes,
        };
        if sizes.is_empty() {
            problems.push(format!("{name}: at least one is needed"));
        }
        let mut mix = |size: &SizeFile| {
            let text = match size {
                SizeFile::Bytes(bytes) => bytes.to_string(),
                SizeFile::Mix(text) => text.clone(),
            };
            text.parse().map_err(|error| problems.push(format!("{name}: {error}"))).ok()
        };
        sizes.iter().filter_map(&mut mix).collect()
    }
}

/// The sizes of a plan; the smallest with a stream tag where it names none.
pub(super) fn packet_sizes(
    frame: Option<&SizesFile>,
    payload: Option<&SizesFile>,
    problems: &mut Vec<String>,
) -> Vec<PacketSize> {
    if frame.is_some() && payload.is_some() {
        problems.push("give frame-size or payload, not both".into());
    }
    if let Some(sizes) = frame {
        let sizes = sizes.each("frame-size", problems).into_iter();
        return sizes.map(|size| PacketSize { frame: Some(size), payload: None }).collect();
    }
    if let Some(sizes) = payload {
        let sizes = sizes.each("payload", problems).into_iter();
        return sizes.map(|size| PacketSize { frame: None, payload: Some(size) }).collect();
    }
    vec![PacketSize::default()]
}
