//! How help is laid out.

/// Help with a command's examples before its options.
pub(crate) const EXAMPLES_FIRST: &str =
    "{before-help}{about-with-newline}\n{usage-heading} {usage}{after-help}\n\n{all-args}";
