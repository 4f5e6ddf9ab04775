//! What limits a card's packet rate: findings from a page that was read before, each with reason, evidence and remedy. Nothing is
//! changed, and nothing is read, here.

use crate::Page;

mod host;
mod rules;
mod view;

use view::View;
pub use view::{Finding, Goal, Surroundings};

/// The findings, the largest expected effect first.
pub fn advise(page: &Page, around: &Surroundings, goal: Goal) -> Vec<Finding> {
    let view = View { page, around, goal };
    let mut findings: Vec<Finding> =
        rules::RULES.iter().chain(&host::RULES).filter_map(|rule| rule(&view)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.effect));
    findings
}

#[cfg(test)]
mod tests;
