//! Options of sockets, for engines that have them.

use super::{
    super::knob::{ENDS_WITH_THE_RUN, GIVEN, KnobValue, Row, SENDING, Surroundings, TuneGoal, TunePlace},
    workers::ELSEWHERE,
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "receive-buffer",
        about: "SO_RCVBUF in bytes: how much a socket holds while its reader is busy",
        risk: "a reader that never catches up gets old packets; without root, net.core.rmem_max bounds it",
        undone: ENDS_WITH_THE_RUN,
        application: "setsockopt(SOL_SOCKET, SO_RCVBUF, {}); without root, sysctl net.core.rmem_max must allow it",
        values: |around| of_receiver(around, "receive-buffer", &["1048576", "8388608"]),
    },
    Row {
        name: "busy-poll",
        about: "SO_BUSY_POLL in microseconds: before it sleeps, a receiving call polls the card for this long",
        risk: "keeps the reader's CPU busy even without traffic",
        undone: ENDS_WITH_THE_RUN,
        application: "setsockopt(SOL_SOCKET, SO_BUSY_POLL, {})",
        values: |around| of_receiver(around, "busy-poll", &["50"]),
    },
    Row {
        name: "send-buffer",
        about: "SO_SNDBUF in bytes: how much may wait in the kernel before a sending call blocks",
        risk: "packets wait longer in the kernel; without root, net.core.wmem_max bounds it",
        undone: ENDS_WITH_THE_RUN,
        application: "setsockopt(SOL_SOCKET, SO_SNDBUF, {}); without root, sysctl net.core.wmem_max must allow it",
        values: |around| {
            if around.is_given("send-buffer") {
                return Err(GIVEN);
            }
            if !around.pair.tx.options().contains(&"send-buffer") {
                return Err("the sending engine has no such option");
            }
            Ok(vec![KnobValue::as_is("default"), KnobValue::option("send-buffer", 4_194_304)])
        },
    },
];

fn of_receiver(
    around: &Surroundings<'_>,
    option: &'static str,
    values: &[&str],
) -> Result<Vec<KnobValue>, &'static str> {
    match around.place {
        _ if around.is_given(option) => Err(GIVEN),
        TunePlace::Peer => Err(ELSEWHERE),
        _ if around.goal == TuneGoal::Tx => Err(SENDING),
        _ if !around.pair.rx.options().contains(&option) => Err("the receiving engine has no such option"),
        _ => {
            let values = values.iter().map(|value| KnobValue::option(option, value));
            Ok([KnobValue::as_is("default")].into_iter().chain(values).collect())
        }
    }
}
