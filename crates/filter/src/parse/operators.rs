//! The signs of arithmetic and comparisons.

use crate::{ast::Op, lexer::Kind};

/// Whether this word continues arithmetic or a comparison.
pub(super) fn goes_on(kind: &Kind) -> bool {
    operator(kind).is_some() || matches!(kind, Kind::Sign("=" | "!=" | "<" | ">" | "<=" | ">="))
}

/// The binding power of an operator to its left and to its right.
///
/// `%` and `^` have no precedence in libpcap's grammar, so its parser always shifts.
pub(super) fn operator(kind: &Kind) -> Option<(Op, u8, u8)> {
    let Kind::Sign(sign) = kind else { return None };
    Some(match *sign {
        "|" => (Op::Or, 1, 2),
        "&" => (Op::And, 3, 4),
        "<<" => (Op::Shl, 5, 6),
        ">>" => (Op::Shr, 5, 6),
        "+" => (Op::Add, 7, 8),
        "-" => (Op::Sub, 7, 8),
        "*" => (Op::Mul, 9, 10),
        "/" => (Op::Div, 9, 10),
        "%" => (Op::Mod, 100, 0),
        "^" => (Op::Xor, 100, 0),
        _ => return None,
    })
}
