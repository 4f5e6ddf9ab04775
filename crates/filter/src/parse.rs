//! From words to conditions. The grammar is pcap-filter(7)'s; where that is silent, libpcap's behaviour.
//!
//! `and` and `or` bind equally and from left to right; an id without qualifiers has those of the condition before
//! it (`port 53 or 443`); `%` and `^` take everything to their right, because libpcap's do.

use std::ops::Range;

use crate::{
    ast::{Direction, Id, IdKind, Link, LlcType, Node, Primitive, Protocol, Qualifiers, Relation},
    error::{FilterError, FilterErrorKind},
    lexer::{Kind, Token, words},
};

mod arithmetic;
mod operators;

/// The nesting limit: the parser is recursive.
const DEPTH: usize = 64;
/// The arithmetic limit: evaluation is recursive.
const OPERATORS: usize = 256;
/// Longer expressions are refused.
const LENGTH: usize = 1 << 16;

/// Parses the text as a condition; `None` when it is empty: everything matches.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, FilterError> {
    if text.len() > LENGTH {
        let problem = format!("an expression must be at most {LENGTH} bytes long, not {}", text.len());
        return Err(FilterError::new(FilterErrorKind::TooLarge, 0..0, problem));
    }
    let tokens = words(text)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut parser = Parser { tokens: &tokens, next: 0, end: text.len(), depth: 0, operators: 0 };
    let (node, _) = parser.chain(None)?;
    match parser.tokens.get(parser.next) {
        None => Ok(Some(node)),
        Some(token) => {
            // The lexer took a misspelt keyword for a host name.
            if let Some(Token { kind: Kind::Name(name), at }) = parser.tokens.get(parser.next - 1)
                && near_keyword(name).is_some()
            {
                return Err(bare_name(name, at.clone()));
            }
            Err(parser.unexpected(token, "the expression ends before"))
        }
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    next: usize,
    /// Length of the text.
    end: usize,
    depth: usize,
    operators: usize,
}

/// A condition, and the qualifiers that an id behind it has.
type Read = (Node, Option<Qualifiers>);

impl Parser<'_> {
    fn chain(&mut self, before: Option<Qualifiers>) -> Result<Read, FilterError> {
        let (first, mut qualifiers) = self.term(before)?;
        let mut rest = Vec::new();
        while let Some(link) = self.link() {
            let (node, with) = if self.at_id() { self.id(qualifiers)? } else { self.term(qualifiers)? };
            rest.push((link, node));
            qualifiers = with;
        }
        let node = if rest.is_empty() { first } else { Node::Chain(Box::new(first), rest) };
        Ok((node, qualifiers))
    }

    fn link(&mut self) -> Option<Link> {
        let link = match self.tokens.get(self.next)?.kind {
            Kind::Word("and") => Link::And,
            Kind::Word("or") => Link::Or,
            _ => return None,
        };
        self.next += 1;
        Some(link)
    }

    /// Whether an id without qualifiers follows, after any number of "not" and "(".
    fn at_id(&self) -> bool {
        let (mut at, mut open) = (self.next, 0);
        while let Some(token) = self.tokens.get(at) {
            match &token.kind {
                Kind::Word("not") => {}
                Kind::Sign("(") => open += 1,
                Kind::Name(_) | Kind::Dotted(_) | Kind::Ipv6(_) | Kind::Mac(_) => return true,
                Kind::Number(_) => {
                    let after = self.tokens[at + 1..].iter();
                    let mut after = after.skip_while(|token| {
                        let closes = token.kind == Kind::Sign(")") && open > 0;
                        open -= usize::from(closes);
                        closes
                    });
                    return !after.next().is_some_and(|token| operators::goes_on(&token.kind));
                }
                _ => return false,
            }
            at += 1;
        }
        false
    }

    fn term(&mut self, before: Option<Qualifiers>) -> Result<Read, FilterError> {
        self.deeper(|parser| {
            if parser.skip_word("not") {
                let (node, qualifiers) = parser.term(before)?;
                return Ok((Node::Not(Box::new(node)), qualifiers));
            }
            if parser.peek() == Some(&Kind::Sign("(")) && !parser.bracket_is_arithmetic() {
                parser.next += 1;
                let (node, _) = parser.chain(before)?;
                parser.expect_sign(")")?;
                return Ok((node, before));
            }
            parser.primitive()
        })
    }

    /// Ids joined with each other, all with the same qualifiers.
    fn id(&mut self, qualifiers: Option<Qualifiers>) -> Result<Read, FilterError> {
        self.deeper(|parser| {
            if parser.skip_word("not") {
                let (node, qualifiers) = parser.id(qualifiers)?;
                return Ok((Node::Not(Box::new(node)), qualifiers));
            }
            if parser.peek() == Some(&Kind::Sign("(")) {
                parser.next += 1;
                let (first, _) = parser.id(qualifiers)?;
                let mut rest = Vec::new();
                while let Some(link) = parser.link() {
                    rest.push((link, parser.id(qualifiers)?.0));
                }
                parser.expect_sign(")")?;
                let node = if rest.is_empty() { first } else { Node::Chain(Box::new(first), rest) };
                return Ok((node, qualifiers));
            }
            let start = parser.here().start;
            let id = parser.one_id()?;
            let at = start..parser.behind();
            let Some(qualifiers) = qualifiers else {
                let error = FilterError::syntax(at, "no qualifier says what this is");
                return Err(error.hint("write 'host', 'net', 'port' or 'proto' before it"));
            };
            Ok((Node::Leaf(Primitive::Match(qualifiers, id), at), Some(qualifiers)))
        })
    }

    fn one_id(&mut self) -> Result<Id, FilterError> {
        let Some(token) = self.tokens.get(self.next) else {
            return Err(self.missing("an address, name or number"));
        };
        self.next += 1;
        Ok(match &token.kind {
            Kind::Number(number) => Id::Number(*number),
            Kind::Name(name) => Id::Name(name.clone()),
            Kind::Mac(address) => Id::Mac(*address),
            Kind::Ipv6(address) if self.skip_sign("/") => Id::Ipv6Prefix(*address, self.number()?),
            Kind::Ipv6(address) => Id::Ipv6(*address),
            Kind::Dotted(dotted) if self.skip_sign("/") => Id::DottedPrefix(*dotted, self.number()?),
            Kind::Dotted(dotted) if self.skip_word("mask") => match self.tokens.get(self.next) {
                Some(Token { kind: Kind::Dotted(mask), .. }) => {
                    self.next += 1;
                    Id::DottedMask(*dotted, *mask)
                }
                Some(token) => return Err(self.unexpected(token, "expected a mask like 255.255.0.0, not")),
                None => return Err(self.missing("a mask like 255.255.0.0")),
            },
            Kind::Dotted(dotted) => Id::Dotted(*dotted),
            Kind::Word(word) => {
                let error = self.unexpected(token, "expected an address, name or number, not the keyword");
                return Err(error.hint(format!("a backslash makes it a name: \\{word}")));
            }
            Kind::Sign(_) => return Err(self.unexpected(token, "expected an address, name or number, not")),
        })
    }

    fn primitive(&mut self) -> Result<Read, FilterError> {
        let start = self.here().start;
        let Some(token) = self.tokens.get(self.next) else { return Err(self.missing("a condition")) };
        let word = match &token.kind {
            Kind::Word(word) => *word,
            Kind::Name(name) => return Err(bare_name(name, token.at.clone())),
            Kind::Dotted(_) | Kind::Ipv6(_) | Kind::Mac(_) => {
                let error = FilterError::syntax(token.at.clone(), "an address alone is not a condition");
                return Err(error.hint("write 'host', 'net' or 'ether host' before it"));
            }
            Kind::Number(_) | Kind::Sign("(" | "-") => return self.relation(start),
            Kind::Sign(_) => return Err(self.unexpected(token, "expected a condition, not")),
        };
        if word == "len" {
            return self.relation(start);
        }
        if let Some(problem) = not_of_ethernet(word) {
            let error = FilterError::new(FilterErrorKind::NotOfFrames, token.at.clone(), problem.0);
            return Err(error.hint(problem.1));
        }
        let protocol = Protocol::named(word);
        if protocol.is_some() {
            if self.tokens.get(self.next + 1).is_some_and(|token| token.kind == Kind::Sign("[")) {
                return self.relation(start);
            }
            self.next += 1;
        }
        self.qualified(protocol, start)
    }

    /// What may follow a protocol, or appear without one.
    fn qualified(&mut self, protocol: Option<Protocol>, start: usize) -> Result<Read, FilterError> {
        let word = match self.peek() {
            Some(Kind::Word(word)) => *word,
            _ => "",
        };
        if matches!(
            word,
            "src"
                | "dst"
                | "host"
                | "net"
                | "set"
                | "port"
                | "portrange"
                | "proto"
                | "protochain"
                | "gateway"
        ) {
            let qualifiers = Some(self.qualifiers(protocol));
            let (node, with) = self.id(qualifiers)?;
            let whole = start..self.behind();
            // The mark of a mistake covers the qualifiers, too.
            let node = match node {
                Node::Leaf(primitive, _) => Node::Leaf(primitive, whole),
                node => node,
            };
            return Ok((node, with));
        }
        if let Some(problem) = not_of_ethernet(word) {
            let at = self.here();
            return Err(FilterError::new(FilterErrorKind::NotOfFrames, at, problem.0).hint(problem.1));
        }
        let primitive = match word {
            "broadcast" => self.then(Primitive::Broadcast(protocol)),
            "multicast" => self.then(Primitive::Multicast(protocol)),
            _ => match protocol {
                Some(protocol) => Primitive::Protocol(protocol),
                None => self.keyword(word)?,
            },
        };
        Ok((Node::Leaf(primitive, start..self.behind()), None))
    }

    fn qualifiers(&mut self, protocol: Option<Protocol>) -> Qualifiers {
        let direction = self.direction();
        let kind = match self.peek() {
            Some(Kind::Word("host")) => Some(IdKind::Host),
            Some(Kind::Word("net")) => Some(IdKind::Net),
            Some(Kind::Word("set")) => Some(IdKind::Set),
            Some(Kind::Word("port")) => Some(IdKind::Port),
            Some(Kind::Word("portrange")) => Some(IdKind::PortRange),
            // These take no direction.
            Some(Kind::Word("proto")) if direction.is_none() => Some(IdKind::Proto),
            Some(Kind::Word("protochain")) if direction.is_none() => Some(IdKind::ProtoChain),
            Some(Kind::Word("gateway")) if direction.is_none() => Some(IdKind::Gateway),
            _ => None,
        };
        self.next += usize::from(kind.is_some());
        Qualifiers { protocol, direction, kind }
    }

    fn direction(&mut self) -> Option<Direction> {
        let one = |word: Option<&Token>| match word?.kind {
            Kind::Word("src") => Some(Direction::Src),
            Kind::Word("dst") => Some(Direction::Dst),
            _ => None,
        };
        let first = one(self.tokens.get(self.next))?;
        self.next += 1;
        let both = match self.peek() {
            Some(Kind::Word("or")) => Direction::Or,
            Some(Kind::Word("and")) => Direction::And,
            _ => return Some(first),
        };
        match one(self.tokens.get(self.next + 1)) {
            Some(second) if second != first => {
                self.next += 2;
                Some(both)
            }
            _ => Some(first),
        }
    }

    fn keyword(&mut self, word: &str) -> Result<Primitive, FilterError> {
        let token = self.tokens.get(self.next).expect("the caller peeked at it");
        self.next += 1;
        Ok(match word {
            "less" => Primitive::Less(self.number()?),
            "greater" => Primitive::Greater(self.number()?),
            "vlan" => Primitive::Vlan(self.bracketed_number()?),
            "mpls" => Primitive::Mpls(self.bracketed_number()?),
            "pppoed" => Primitive::Pppoed,
            "pppoes" => Primitive::Pppoes(self.bracketed_number()?),
            "geneve" => Primitive::Geneve(self.bracketed_number()?),
            "llc" => Primitive::Llc(self.llc_type()?),
            "byte" => self.byte()?,
            _ => return Err(self.unexpected(token, "expected a condition, not")),
        })
    }

    /// `byte 12 = 8`; undocumented, and libpcap does not load the byte for `&` and `|`.
    fn byte(&mut self) -> Result<Primitive, FilterError> {
        let offset = self.number()?;
        let Some(token) = self.tokens.get(self.next) else { return Err(self.missing("=, < or >")) };
        self.next += 1;
        let relation = match token.kind {
            Kind::Sign("=") => Relation::Equal,
            Kind::Sign("<") => Relation::Less,
            Kind::Sign(">") => Relation::Greater,
            Kind::Sign("&" | "|") => {
                let error = FilterError::meaning(token.at.clone(), "'byte' cannot combine bits");
                return Err(error.hint(format!("write ether[{offset}] & 3 != 0")));
            }
            _ => return Err(self.unexpected(token, "expected =, < or >, not")),
        };
        Ok(Primitive::Byte(offset, relation, self.number()?))
    }

    fn llc_type(&mut self) -> Result<Option<LlcType>, FilterError> {
        let (name, at) = match self.tokens.get(self.next) {
            Some(Token { kind: Kind::Name(name), at }) => (name.as_str(), at),
            // Also pf's keyword for a rule number.
            Some(Token { kind: Kind::Word("rnr"), at }) => ("rnr", at),
            _ => return Ok(None),
        };
        self.next += 1;
        Ok(Some(match name {
            "i" => LlcType::Information,
            "s" => LlcType::Supervisory,
            "u" => LlcType::Unnumbered,
            "rr" => LlcType::SupervisoryCommand(0x01),
            "rnr" => LlcType::SupervisoryCommand(0x05),
            "rej" => LlcType::SupervisoryCommand(0x09),
            "ui" => LlcType::UnnumberedCommand(0x03),
            "dm" => LlcType::UnnumberedCommand(0x0f),
            "ua" => LlcType::UnnumberedCommand(0x63),
            "disc" => LlcType::UnnumberedCommand(0x43),
            "sabme" => LlcType::UnnumberedCommand(0x6f),
            "test" => LlcType::UnnumberedCommand(0xe3),
            "xid" => LlcType::UnnumberedCommand(0xaf),
            "frmr" => LlcType::UnnumberedCommand(0x87),
            _ => {
                let problem = format!("unknown kind of LLC frame '{name}'");
                let error = FilterError::new(FilterErrorKind::UnknownName, at.clone(), problem);
                return Err(
                    error.hint("expected i, s, u, rr, rnr, rej, ui, dm, ua, disc, sabme, test, xid or frmr")
                );
            }
        }))
    }

    fn relation(&mut self, start: usize) -> Result<Read, FilterError> {
        let left = self.arithmetic()?;
        let Some(token) = self.tokens.get(self.next) else { return Err(self.missing("a comparison")) };
        let relation = match token.kind {
            Kind::Sign("=") => Relation::Equal,
            Kind::Sign("!=") => Relation::NotEqual,
            Kind::Sign(">") => Relation::Greater,
            Kind::Sign(">=") => Relation::GreaterEqual,
            Kind::Sign("<") => Relation::Less,
            Kind::Sign("<=") => Relation::LessEqual,
            _ => return Err(self.unexpected(token, "expected a comparison, not")),
        };
        self.next += 1;
        let right = self.arithmetic()?;
        Ok((Node::Leaf(Primitive::Relation(left, relation, right), start..self.behind()), None))
    }

    /// An optional number, optionally in brackets.
    fn bracketed_number(&mut self) -> Result<Option<u32>, FilterError> {
        let open = self.tokens[self.next..].iter().take_while(|token| token.kind == Kind::Sign("(")).count();
        let Some(Token { kind: Kind::Number(number), .. }) = self.tokens.get(self.next + open) else {
            return Ok(None);
        };
        self.next += open + 1;
        for _ in 0..open {
            self.expect_sign(")")?;
        }
        Ok(Some(*number))
    }

    fn number(&mut self) -> Result<u32, FilterError> {
        match self.tokens.get(self.next) {
            Some(Token { kind: Kind::Number(number), .. }) => {
                self.next += 1;
                Ok(*number)
            }
            Some(token) => Err(self.unexpected(token, "expected a number, not")),
            None => Err(self.missing("a number")),
        }
    }

    fn then<T>(&mut self, value: T) -> T {
        self.next += 1;
        value
    }

    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    fn skip_word(&mut self, word: &'static str) -> bool {
        let is = self.peek() == Some(&Kind::Word(word));
        self.next += usize::from(is);
        is
    }

    fn skip_sign(&mut self, sign: &'static str) -> bool {
        let is = self.peek() == Some(&Kind::Sign(sign));
        self.next += usize::from(is);
        is
    }

    fn expect_sign(&mut self, sign: &'static str) -> Result<(), FilterError> {
        match self.tokens.get(self.next) {
            Some(token) if token.kind == Kind::Sign(sign) => {
                self.next += 1;
                Ok(())
            }
            Some(token) => Err(self.unexpected(token, &format!("'{sign}' is wanted before"))),
            None => Err(self.missing(&format!("'{sign}'"))),
        }
    }

    /// The position of the next word, or the end.
    fn here(&self) -> Range<usize> {
        self.tokens.get(self.next).map_or(self.end..self.end, |token| token.at.clone())
    }

    /// The end of the previous word.
    fn behind(&self) -> usize {
        self.next.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(0, |token| token.at.end)
    }

    fn missing(&self, what: &str) -> FilterError {
        FilterError::syntax(self.end..self.end, format!("the expression ends, expected {what}"))
    }

    fn unexpected(&self, token: &Token, wanted: &str) -> FilterError {
        let what = match &token.kind {
            Kind::Word(word) => format!("'{word}'"),
            Kind::Sign(sign) => format!("'{sign}'"),
            Kind::Number(number) => format!("the number {number}"),
            Kind::Name(name) => format!("'{name}'"),
            Kind::Dotted(_) | Kind::Ipv6(_) | Kind::Mac(_) => "an address".into(),
        };
        let error = FilterError::syntax(token.at.clone(), format!("{wanted} {what}"));
        let condition = matches!(&token.kind, Kind::Word(word) if !matches!(*word, "and" | "or" | "not"));
        if wanted == "the expression ends before" && condition {
            return error.hint("join conditions with 'and' or 'or'");
        }
        error
    }

    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FilterError>,
    ) -> Result<T, FilterError> {
        if self.depth == DEPTH {
            let problem = format!("brackets and 'not' are nested more than {DEPTH} deep");
            return Err(FilterError::new(FilterErrorKind::TooLarge, self.here(), problem));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }
}

fn bare_name(name: &str, at: Range<usize>) -> FilterError {
    let error = FilterError::syntax(at, format!("unknown keyword '{name}'"));
    if name.split_once('-').is_some_and(|(first, _)| crate::lexer::keywords().any(|known| known == first)) {
        return error.hint("a name may have '-' in it: put spaces around a minus sign");
    }
    match near_keyword(name) {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None => error.hint(format!("a host name needs 'host' before it: host {name}")),
    }
}

/// The keyword that a name is probably a misspelling of.
fn near_keyword(name: &str) -> Option<&'static str> {
    let near = crate::lexer::keywords()
        .filter(|known| known.len() > 2 && distance(known, name) <= 1 + known.len() / 6);
    near.min_by_key(|known| distance(known, name))
}

/// How many letters differ, are missing, are too many or are swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.bytes().collect(), b.bytes().take(32).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let plain = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { plain.min(rows[i - 2][j - 2] + 1) } else { plain }
            };
        }
    }
    rows[a.len()][b.len()]
}

/// Parts of the language for other links, or that a frame cannot answer: the problem and a hint.
fn not_of_ethernet(word: &str) -> Option<(String, &'static str)> {
    let ethernet = "expressions here apply to Ethernet frames only";
    Some(match word {
        "inbound" | "outbound" => {
            (format!("a frame does not contain '{word}'"), "XDP and receive queues only see incoming frames")
        }
        "ifindex" | "ifname" => {
            (format!("a frame does not contain '{word}'"), "choose the interface when starting linerate")
        }
        "rset" | "rnr" | "srnr" | "reason" | "action" => (format!("'{word}' applies to pf's log"), ethernet),
        "type" | "subtype" | "dir" | "addr1" | "addr2" | "addr3" | "addr4" | "ra" | "ta" | "radio" => {
            (format!("'{word}' is about 802.11"), ethernet)
        }
        "lane" | "metac" | "bcc" | "oam" | "oamf4" | "oamf4ec" | "oamf4sc" | "sc" | "ilmic" | "vpi"
        | "vci" | "connectmsg" | "metaconnect" => (format!("'{word}' is about ATM"), ethernet),
        "fisu" | "lssu" | "msu" | "hfisu" | "hlssu" | "hmsu" | "sio" | "opc" | "dpc" | "sls" | "hsio"
        | "hopc" | "hdpc" | "hsls" => (format!("'{word}' is about SS7"), ethernet),
        _ => return None,
    })
}
