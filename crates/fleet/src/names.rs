//! The names on the server: subjects, the stream of runs and results, and which names agents may have.

/// Where runs and results are stored.
pub(crate) const STREAM: &str = "LINERATE";
/// What every agent hears.
pub(crate) const ASK_ALL: &str = "linerate.ask-all";
/// What is stored.
pub(crate) const STORED: [&str; 1] = ["linerate.run.>"];
/// All leases.
pub(crate) const LEASES: &str = "linerate.lease.*";

/// Whether a text can name an agent or a run: one token of a subject.
pub fn is_name(text: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.len() <= 64 && text.chars().all(is_fit)
}

/// What one agent hears.
pub(crate) fn ask(agent: &str) -> String {
    format!("linerate.ask.{agent}")
}

/// What an agent says to itself, to know that the server is there.
pub(crate) fn echo(agent: &str) -> String {
    format!("linerate.echo.{agent}")
}

/// Where a coordinator renews its lease.
pub(crate) fn lease(run: &str) -> String {
    format!("linerate.lease.{run}")
}

/// Where a sender shows its counters while it sends.
pub(crate) fn live(run: &str, agent: &str) -> String {
    format!("linerate.live.{run}.{agent}")
}

/// The counters of all senders of a run.
pub(crate) fn live_of(run: &str) -> String {
    live(run, "*")
}

/// The answers that a client waits for.
pub(crate) fn inbox(client: &str) -> String {
    format!("_INBOX_{client}")
}

/// An agent's result.
pub(crate) fn result(agent: &str, run: &str) -> String {
    format!("linerate.run.{run}.result.{agent}")
}

/// All that is stored of a run: one filter, which servers before 2.10 know, too.
pub(crate) fn all_of(run: &str) -> String {
    format!("linerate.run.{run}.>")
}

/// What a run is to do.
pub(crate) fn head(run: &str) -> String {
    format!("linerate.run.{run}.head")
}

/// What a run decided on the way.
pub(crate) fn steps(run: &str) -> String {
    format!("linerate.run.{run}.step")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_token_of_a_subject() {
        assert!(is_name("edge-1_a") && is_name(&"a".repeat(64)));
        for wrong in ["", "a.b", "a b", "*", ">", "ä", &"a".repeat(65)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
