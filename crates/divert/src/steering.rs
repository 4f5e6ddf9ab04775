//! Settings of the card during a diversion: made through the journal of [`nic`], undone with the diversion, and after
//! a kill by `linerate nic restore`.

use std::path::PathBuf;

use measure::DivertLeft;
use nic::{Repaired, Session, SessionError, Setting};
use serde::Serialize;

use crate::{buckets::Bucket, card::Card, error::DivertError};

pub(crate) mod limits;

/// Settings of the card during a diversion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Steering {
    /// The settings, all or none of which are made.
    pub settings: Vec<Setting>,
    /// Whether the diversion starts without them if the card refuses.
    pub may_fail: bool,
    /// What switches rules on, where they are off.
    pub switch: Option<Setting>,
    /// What that disables on the card.
    pub switch_ends: Option<String>,
    /// The table of a further context of receive side scaling, to which the rules lead where several queues are diverted.
    pub context: Option<Setting>,
    /// Rules of the card, each with the expression that it is of; one that is refused leaves its packets to the program.
    pub rules: Vec<(String, String)>,
    /// Buckets of the table that bring packets to the queues, where the card takes no rules.
    pub buckets: Vec<Bucket>,
    /// The table without the diverted queues, where a rule was taken; or that with `buckets`.
    pub table: Option<Setting>,
    /// The queues to which the rules lead.
    pub queues: Vec<u32>,
    /// Whether the card drops what its rules take.
    pub drops: bool,
    /// What the card cannot do, and why.
    pub left: Vec<Left>,
    /// Where the journal goes.
    #[serde(skip)]
    pub state: PathBuf,
}

/// What a card does with the packets of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steer {
    /// Steers them to the diverted queues, and others to the other queues.
    ToQueues,
    /// Drops packets whose rules only drop.
    Drop,
}

/// Packets that stay with the program, on every queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Which.
    pub packets: String,
    /// Why the card does not accept them.
    pub why: String,
}

impl Left {
    pub(crate) fn told(&self) -> DivertLeft {
        DivertLeft { packets: self.packets.clone(), why: self.why.clone() }
    }
}

/// The card's part of a [`Steering`]; dropping this restores its settings.
#[derive(Debug)]
pub struct Steered {
    session: Session,
    /// The rules that the card has, as they read back: `rule.9=udp4 dst-port 53 queue 2`; and buckets of its table.
    pub rules: Vec<String>,
    /// Packets that stay with the program, as planned or after a refusal.
    pub left: Vec<Left>,
    /// What else was refused, in words.
    pub refused: Vec<String>,
}

/// The offload that joins packets before a program can see them.
pub(crate) const LRO: &str = "feature.rx-lro";
/// What has to be on before a driver takes rules.
pub(crate) const SWITCH: &str = "feature.rx-ntuple-filter";
/// The offload that takes VLAN tags off before a program can see them.
pub(crate) const VLAN: &str = "feature.rx-vlan-hw-parse";

impl Steering {
    /// What keeps packets from a diversion, or their VLAN tags, and others off the CPUs of its threads: large receive offload, VLAN
    /// offload, and the kernel's own steering where it may lead to the CPU of a queue's thread.
    pub(crate) fn clearing(cpus: &[u32], card: &Card) -> Vec<Setting> {
        let lro = card.lro.then(|| Setting::new(LRO, "off"));
        let others = card.hands_on.iter().filter(|_| !cpus.is_empty()).filter_map(|setting| {
            // Flow steering follows the reader of a socket, wherever that runs.
            if setting.name.starts_with("rfs.") {
                return Some(Setting::new(setting.name.clone(), 0));
            }
            let named = nic::cpus_of_list(&setting.value)?;
            let left: Vec<u32> = named.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect();
            (left.len() < named.len()).then(|| Setting::new(setting.name.clone(), nic::cpu_list(&left)))
        });
        let vlan = card.strips_tags.then(|| Setting::new(VLAN, "off"));
        lro.into_iter().chain(others).chain(vlan).collect()
    }

    /// Settings of the user, which the card must accept.
    pub fn of_settings(settings: Vec<Setting>, state: PathBuf) -> Self {
        Self { settings, state, ..Self::default() }
    }

    /// Whether the card brings packets anywhere, or drops them.
    pub(crate) fn brings(&self) -> bool {
        !self.rules.is_empty() || !self.buckets.is_empty()
    }

    pub(crate) fn tells(&self, name: &str) -> bool {
        self.settings.iter().any(|setting| setting.name == name)
    }

    /// Everything requested of the card, in this order.
    pub(crate) fn asks(&self) -> Vec<Setting> {
        let rules = self.rules.iter().map(|(rule, _)| match &self.context {
            Some(_) => Setting::new("rule.any", rule.replace(" context 0", " to that context")),
            None => Setting::new("rule.any", rule),
        });
        let settings = self.settings.iter().cloned().chain(self.switch.clone()).chain(self.context.clone());
        settings.chain(rules).chain(self.table.clone()).collect()
    }

    /// Sets the card; dropping the result undoes it.
    ///
    /// # Errors
    /// [`DivertError::Card`], where the card refuses what it must take, or something could not be taken back.
    pub fn apply(&self, interface: &str) -> Result<Steered, DivertError> {
        let told = Session::begin(interface, &self.state).and_then(|session| self.apply_in(session));
        told.map_err(|source| DivertError::Card { interface: interface.into(), source: Box::new(source) })
    }

    /// As [`Steering::apply`], in a session that has changed nothing yet.
    ///
    /// # Errors
    /// As the session's.
    pub fn apply_in(&self, session: Session) -> Result<Steered, SessionError> {
        let mut steered =
            Steered { session, rules: Vec::new(), left: self.left.clone(), refused: Vec::new() };
        if let Err(why) = steered.settings(&self.settings)? {
            if !self.may_fail {
                return Err(why);
            }
            steered.refused.push(in_words(&why));
        }
        if let (false, Some(table)) = (self.buckets.is_empty(), &self.table) {
            match steered.settings(std::slice::from_ref(table))? {
                Ok(()) => steered.rules.extend(self.buckets.iter().map(Bucket::told)),
                Err(why) => {
                    let why = format!("the card refused the table: {}", in_words(&why));
                    steered.left.extend(
                        self.buckets
                            .iter()
                            .map(|bucket| Left { packets: bucket.packets.clone(), why: why.clone() }),
                    );
                }
            }
        }
        if self.rules.is_empty() {
            return Ok(steered);
        }
        let begun = |steered: &mut Steered| -> Result<Result<Option<u32>, SessionError>, SessionError> {
            if let Some(switch) = &self.switch
                && let Err(why) = steered.settings(std::slice::from_ref(switch))?
            {
                return Ok(Err(why));
            }
            match &self.context {
                Some(context) => steered.context(context),
                None => Ok(Ok(None)),
            }
        };
        match begun(&mut steered)? {
            Ok(context) => steered.rules(&self.rules, context)?,
            Err(why) => {
                let why = in_words(&why);
                steered.leave(&self.rules, &why);
            }
        }
        if steered.rules.is_empty() {
            // No packet is steered: undo the preparations.
            steered.session.undo()?;
            let _ = steered.settings(&self.settings)?;
        } else if let Some(table) = &self.table
            && let Err(why) = steered.settings(std::slice::from_ref(table))?
        {
            steered.refused.push(format!("others stay on those queues: {}", in_words(&why)));
        }
        Ok(steered)
    }
}

impl Steered {
    /// The refusal, where nothing is left of it; else the error.
    fn settings(&mut self, settings: &[Setting]) -> Result<Result<(), SessionError>, SessionError> {
        self.apply(settings).map(|outcome| outcome.map(|_| ()))
    }

    fn apply(&mut self, settings: &[Setting]) -> Result<Result<nic::Applied, SessionError>, SessionError> {
        match self.session.apply(settings) {
            Ok(applied) => Ok(Ok(applied)),
            // The user must see a failed undo.
            Err(SessionError::RolledBack { cause, left }) if left.is_empty() => {
                Ok(Err(SessionError::Nic(*cause)))
            }
            Err(SessionError::Problems { mut problems }) if !problems.is_empty() => {
                Ok(Err(SessionError::Nic(problems.remove(0))))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a context; returns its number.
    fn context(&mut self, context: &Setting) -> Result<Result<Option<u32>, SessionError>, SessionError> {
        Ok(self.apply(std::slice::from_ref(context))?.map(|applied| {
            let came = applied.outcomes.iter().find_map(|outcome| outcome.now.as_deref());
            came.and_then(|text| text.strip_prefix("context.")?.split_once('=')?.0.parse().ok())
        }))
    }

    /// All rules at once; where one is refused, one by one.
    fn rules(&mut self, rules: &[(String, String)], context: Option<u32>) -> Result<(), SessionError> {
        let setting = |(rule, _): &(String, String)| match context {
            Some(number) => {
                Setting::new("rule.any", rule.replace(" context 0", &format!(" context {number}")))
            }
            None => Setting::new("rule.any", rule),
        };
        let all: Vec<Setting> = rules.iter().map(setting).collect();
        if let Ok(applied) = self.apply(&all)? {
            self.take(&applied);
            return Ok(());
        }
        for rule in rules {
            match self.apply(&[setting(rule)])? {
                Ok(applied) => self.take(&applied),
                Err(why) => {
                    let why = in_words(&why);
                    self.leave(std::slice::from_ref(rule), &why);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, applied: &nic::Applied) {
        self.rules.extend(applied.outcomes.iter().filter_map(|outcome| outcome.now.clone()));
    }

    fn leave(&mut self, rules: &[(String, String)], why: &str) {
        self.left.extend(rules.iter().map(|(rule, of)| {
            let flow =
                [" queue ", " context ", " drop"].iter().find_map(|word| Some(rule.split_once(word)?.0));
            Left {
                packets: format!("'{}' of '{of}'", flow.unwrap_or(rule)),
                why: format!("the card refused: {why}"),
            }
        }));
    }

    /// Restores tables and rules after a reset of the card, which programs and zero-copy sockets can cause.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn repair(&mut self) -> Result<Repaired, SessionError> {
        self.session.repair()
    }

    /// Restores the settings of the card.
    ///
    /// # Errors
    /// As the session's.
    pub fn undo(&mut self) -> Result<nic::Restored, SessionError> {
        self.session.undo()
    }
}

/// An error and its causes, each once.
fn in_words(error: &SessionError) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.ends_with(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = error.source();
    }
    words
}
