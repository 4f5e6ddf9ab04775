//! The body for the control protocol.

/// A line from an untrusted peer: it parses or fails cleanly, and a parsed line survives a round trip.
pub fn line(bytes: &[u8]) {
    if let Ok(message) = session::Message::parse(bytes) {
        // Another version's first message is only read.
        if matches!(message, session::Message::OtherVersion { .. }) {
            return;
        }
        let again = serde_json::to_vec(&message).expect("a message can be written");
        session::Message::parse(&again).expect("what was written reads back");
    }
}
