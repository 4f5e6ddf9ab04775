//! Arithmetic: numbers, the length of the frame, and fields of it.

use crate::{
    ast::{Arith, Op, Protocol},
    error::{FilterError, FilterErrorKind},
    lexer::Kind,
};

use super::{
    Parser,
    operators::{goes_on, operator},
};

/// The precedence of a sign: higher than every ranked operator.
const MINUS: u8 = 11;

impl Parser<'_> {
    pub(super) fn arithmetic(&mut self) -> Result<Arith, FilterError> {
        self.arithmetic_above(0)
    }

    /// Whether the next bracket holds a number and not a condition: the word after its end decides.
    pub(super) fn bracket_is_arithmetic(&self) -> bool {
        let mut open = 0;
        for (index, token) in self.tokens[self.next..].iter().enumerate() {
            match token.kind {
                Kind::Sign("(") => open += 1,
                Kind::Sign(")") => open -= 1,
                _ => {}
            }
            if open == 0 {
                let behind = self.tokens.get(self.next + index + 1);
                return behind.is_some_and(|token| goes_on(&token.kind));
            }
        }
        false
    }

    fn arithmetic_above(&mut self, least: u8) -> Result<Arith, FilterError> {
        self.deeper(|parser| {
            let start = parser.here().start;
            let mut left = parser.operand()?;
            while let Some((op, holds_left, holds_right)) = parser.peek().and_then(operator) {
                if holds_left < least {
                    break;
                }
                let at = parser.here();
                parser.next += 1;
                let right = parser.arithmetic_above(holds_right)?;
                let divides = matches!(op, Op::Div | Op::Mod);
                if divides && right == Arith::Number(0) {
                    return Err(FilterError::meaning(start..parser.behind(), "division by zero"));
                }
                if let (Op::Shl | Op::Shr, Arith::Number(32..)) = (op, &right) {
                    return Err(FilterError::meaning(
                        start..parser.behind(),
                        "a shift must be by at most 31 bits",
                    ));
                }
                parser.operators += 1;
                if parser.operators > super::OPERATORS {
                    let problem =
                        format!("an expression must have at most {} arithmetic operators", super::OPERATORS);
                    return Err(FilterError::new(FilterErrorKind::TooLarge, at, problem));
                }
                left = Arith::Op(op, Box::new(left), Box::new(right), start..parser.behind());
            }
            Ok(left)
        })
    }

    fn operand(&mut self) -> Result<Arith, FilterError> {
        let Some(token) = self.tokens.get(self.next) else { return Err(self.missing("a number")) };
        self.next += 1;
        match &token.kind {
            Kind::Number(number) => Ok(Arith::Number(*number)),
            Kind::Word("len") => Ok(Arith::Len),
            Kind::Sign("-") => Ok(Arith::Neg(Box::new(self.arithmetic_above(MINUS)?))),
            Kind::Sign("(") => {
                let inner = self.arithmetic()?;
                self.expect_sign(")")?;
                Ok(inner)
            }
            Kind::Word(word) => match Protocol::named(word) {
                Some(protocol) => self.field(protocol, token.at.start),
                None => Err(self.unexpected(token, "expected a number, not")),
            },
            Kind::Name(name) if name.contains('-') => {
                let error = FilterError::syntax(token.at.clone(), format!("'{name}' reads as one name"));
                Err(error.hint("put spaces around the minus sign"))
            }
            _ => Err(self.unexpected(token, "expected a number, not")),
        }
    }

    /// `[index]` or `[index:size]` behind a protocol.
    fn field(&mut self, protocol: Protocol, start: usize) -> Result<Arith, FilterError> {
        self.expect_sign("[")?;
        let index = Box::new(self.arithmetic()?);
        let size = if self.skip_sign(":") {
            let at = self.here();
            let size = self.number()?;
            if !matches!(size, 1 | 2 | 4) {
                return Err(FilterError::meaning(
                    at,
                    format!("a field must have 1, 2 or 4 bytes, not {size}"),
                ));
            }
            size
        } else {
            1
        };
        self.expect_sign("]")?;
        Ok(Arith::Load { protocol, index, size, at: start..self.behind() })
    }
}
