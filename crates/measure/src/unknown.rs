//! Unknown figures are `null` in JSON: delivery, when a receiver was lost or never queried.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, value};

use crate::run::{PairSummary, Trial};

/// Members of a trial that describe delivery.
const OF_DELIVERY: [&str; 5] =
    ["/delivered", "/delivered_pps", "/loss_ratio", "/ledger/delivered", "/receipt/delivered"];

/// A figure, or zero for `null`.
pub(crate) fn or_zero<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl Serialize for Trial {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.ledger.unknown_because().is_none() {
            return Self::serialize(self, to);
        }
        let mut members = Self::serialize(self, value::Serializer).map_err(serde::ser::Error::custom)?;
        for member in OF_DELIVERY {
            *members.pointer_mut(member).expect("every trial has this member") = Value::Null;
        }
        members.serialize(to)
    }
}

/// And of a pair.
const OF_PAIRS: [&str; 2] = ["/delivered_pps", "/agrees"];

impl Serialize for PairSummary {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.delivered_pps.trials > 0 {
            return Self::serialize(self, to);
        }
        let mut members = Self::serialize(self, value::Serializer).map_err(serde::ser::Error::custom)?;
        for member in OF_PAIRS {
            *members.pointer_mut(member).expect("a pair has this member") = Value::Null;
        }
        members.serialize(to)
    }
}

impl<'de> Deserialize<'de> for PairSummary {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }
}

impl<'de> Deserialize<'de> for Trial {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, LedgerLine};

    fn trial(lines: Vec<LedgerLine>) -> Trial {
        Trial {
            sent: 10,
            delivered: 4,
            loss_ratio: 0.6,
            ledger: Ledger::close(10, 4, lines),
            ..Trial::default()
        }
    }

    #[test]
    fn what_nobody_knows_is_null_and_reads_as_zero() {
        let known = trial(vec![LedgerLine::new("a place", 6, "counter")]);
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<Trial>(&text).unwrap(), known);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["delivered"], 4);

        let unknown = trial(vec![LedgerLine::unobserved(6, "the receiver was lost")]);
        let text = serde_json::to_string(&unknown).unwrap();
        let members: Value = serde_json::from_str(&text).unwrap();
        for member in OF_DELIVERY {
            assert_eq!(members.pointer(member), Some(&Value::Null), "{member}");
        }
        assert_eq!((&members["sent"], &members["ledger"]["unexplained"]), (&10.into(), &0.into()));
        let pairs = |trials: &[Trial]| serde_json::to_value(PairSummary::of(trials)).unwrap();
        let lost = pairs(std::slice::from_ref(&unknown));
        assert_eq!((&lost[0]["delivered_pps"], &lost[0]["agrees"]), (&Value::Null, &Value::Null));
        assert_eq!(lost[0]["sent_pps"]["trials"], 1);
        let read: PairSummary = serde_json::from_value(lost[0].clone()).unwrap();
        assert_eq!((read.delivered_pps.trials, read.agrees), (0, false));
        let some = pairs(&[unknown, Trial { delivered_pps: 5.0, ..known }]);
        let delivered = &some[0]["delivered_pps"];
        assert_eq!((&delivered["trials"], &delivered["min"]), (&1.into(), &5.0.into()), "of what is known");
        let read: Trial = serde_json::from_str(&text).unwrap();
        assert_eq!((read.sent, read.delivered, read.loss_ratio), (10, 0, 0.0));
        assert_eq!(read.ledger.unknown_because(), Some("the receiver was lost"));
    }
}
