//! A run in the shape of `iperf3 --json` for UDP and TCP tests, so that scripts written for it read ours.
//!
//! iperf3 describes one test: each trial is a separate object, one after another, as if iperf3 had been run
//! once per trial. A value that was not measured (addresses; jitter and order without statistics) is null, never 0. As in
//! iperf3, bytes are those of UDP payload or of the stream; all threads are one stream.

use std::io::{self, Write};

use measure::{Cost, Interval, Run, Stream, Trial};
use serde_json::{Value, json};

/// Writes one object per trial.
pub fn write_iperf3(run: &Run, out: &mut impl Write) -> io::Result<()> {
    for (at, trial) in run.end.trials.iter().enumerate() {
        let ticks: Vec<&Interval> = run.intervals.iter().filter(|tick| tick.trial as usize == at).collect();
        let test = json!({
            "start": start(run, trial),
            "intervals": ticks.iter().map(|tick| interval(tick, trial)).collect::<Vec<_>>(),
            "end": end(trial),
        });
        serde_json::to_writer_pretty(&mut *out, &test)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The one stream has this number: its socket is unknown.
const SOCKET: u32 = 1;

fn start(run: &Run, trial: &Trial) -> Value {
    let (start, machine) = (&run.start, &run.start.machine);
    let seconds = unix_seconds(&start.started_at);
    let payload_bits = f64::from(trial.payload_bytes) * 8.0;
    let target_bitrate = trial.asked_pps.map_or(0.0, |pps| pps * payload_bits).round();
    json!({
        "connected": [{
            "socket": SOCKET,
            "local_host": null,
            "local_port": null,
            "remote_host": null,
            "remote_port": null,
        }],
        "version": format!("linerate {}", start.version),
        "system_info": format!("Linux {} {}", machine.kernel, machine.architecture),
        "title": format!("{} → {}, trial {}", trial.tx.label, trial.rx.label, trial.trial),
        "timestamp": { "time": seconds.map(http_date), "timesecs": seconds },
        "connecting_to": { "host": null, "port": null },
        "cookie": "",
        "target_bitrate": target_bitrate,
        "sock_bufsize": 0,
        "sndbuf_actual": null,
        "rcvbuf_actual": null,
        "test_start": {
            "protocol": if trial.stream.is_some() { "TCP" } else { "UDP" },
            "num_streams": trial.tx.threads,
            "blksize": trial.payload_bytes,
            "omit": 0,
            "duration": trial.duration_s.round(),
            "bytes": 0,
            "blocks": 0,
            "reverse": 0,
            "tos": 0,
            "target_bitrate": target_bitrate,
        },
    })
}

/// The traffic sent in a tick, or received if only that is known.
fn interval(tick: &Interval, trial: &Trial) -> Value {
    let (packets, sender) = match (tick.sent, tick.delivered) {
        (Some(sent), _) => (sent, true),
        (None, delivered) => (delivered.unwrap_or(0), false),
    };
    let bytes = packets.saturating_mul(trial.payload_bytes.into());
    let mut sum = json!({
        "start": tick.end_s - tick.length_s,
        "end": tick.end_s,
        "seconds": tick.length_s,
        "bytes": bytes,
        "bits_per_second": per_second(bytes as f64 * 8.0, tick.length_s),
        "omitted": false,
        "sender": sender,
    });
    let mut stream = with_socket(&sum);
    if trial.stream.is_some() {
        // Segments are counted over a whole trial, windows and round trips not at all.
        sum["retransmits"] = Value::Null;
        stream["retransmits"] = Value::Null;
        for name in ["snd_cwnd", "snd_wnd", "rtt", "rttvar", "pmtu"] {
            stream[name] = Value::Null;
        }
    } else {
        sum["packets"] = json!(packets);
        stream["packets"] = json!(packets);
    }
    json!({ "streams": [stream], "sum": sum })
}

fn end(trial: &Trial) -> Value {
    let busy = |cpu_s: f64| per_second(cpu_s * 100.0, trial.duration_s);
    let total = |cost: &Cost| busy(cost.user_s + cost.system_s);
    let mut end = match &trial.stream {
        Some(stream) => end_of_stream(trial, stream),
        None => end_of_datagrams(trial),
    };
    end["cpu_utilization_percent"] = json!({
        "host_total": total(&trial.tx_cost),
        "host_user": busy(trial.tx_cost.user_s),
        "host_system": busy(trial.tx_cost.system_s),
        "remote_total": total(&trial.rx_cost),
        "remote_user": busy(trial.rx_cost.user_s),
        "remote_system": busy(trial.rx_cost.system_s),
    });
    end
}

fn end_of_datagrams(trial: &Trial) -> Value {
    let sequence = trial.statistics.as_ref().and_then(|statistics| statistics.sequence.as_ref());
    let senders = trial.statistics.iter().flat_map(|statistics| &statistics.senders);
    let jitter_ns = senders.filter_map(|sender| sender.jitter_rfc3550_ns).reduce(f64::max);
    let of_trial = |packets: u64, sender: bool| {
        let mut sum = moved(packets.saturating_mul(trial.payload_bytes.into()), trial, sender);
        sum["jitter_ms"] = json!(jitter_ns.map(|ns| ns / 1e6));
        sum["lost_packets"] = json!(trial.ledger.lost());
        sum["packets"] = json!(trial.sent);
        sum["lost_percent"] = json!(trial.loss_ratio * 100.0);
        sum
    };
    let sent = of_trial(trial.sent, true);
    let mut stream = with_socket(&sent);
    stream["out_of_order"] = json!(sequence.map(|sequence| sequence.reordered));
    json!({
        "streams": [{ "udp": stream }],
        "sum": sent,
        "sum_sent": sent,
        "sum_received": of_trial(trial.delivered, false),
    })
}

fn end_of_stream(trial: &Trial, stream: &Stream) -> Value {
    let mut sent = moved(stream.sent_bytes, trial, true);
    sent["retransmits"] = json!(stream.retransmitted_segments);
    let received = moved(stream.delivered_bytes, trial, true);
    let mut sender = with_socket(&sent);
    for name in ["max_snd_cwnd", "max_snd_wnd", "max_rtt", "min_rtt", "mean_rtt"] {
        sender[name] = Value::Null;
    }
    json!({
        "streams": [{ "sender": sender, "receiver": with_socket(&received) }],
        "sum_sent": sent,
        "sum_received": received,
    })
}

fn moved(bytes: u64, trial: &Trial, sender: bool) -> Value {
    json!({
        "start": 0,
        "end": trial.duration_s,
        "seconds": trial.duration_s,
        "bytes": bytes,
        "bits_per_second": per_second(bytes as f64 * 8.0, trial.duration_s),
        "sender": sender,
    })
}

fn with_socket(sum: &Value) -> Value {
    let mut stream = sum.clone();
    stream["socket"] = json!(SOCKET);
    stream
}

fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

/// Seconds since 1970 of an RFC 3339 time in UTC; `None` for anything else.
fn unix_seconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let whole = time.split('.').next()?;
    let numbers = |text: &str, separator| {
        let parts: Option<Vec<i64>> = text.split(separator).map(|part| part.parse().ok()).collect();
        <[i64; 3]>::try_from(parts?).ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hours, minutes, seconds] = numbers(whole, ':')?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(0..=9999).contains(&year) {
        return None;
    }
    // the year begins in March, so that the leap day is its last; months from there have 30.6 days
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// The time as iperf3 writes it: `Mon, 04 May 2026 03:02:01 GMT`.
fn http_date(unix_seconds: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let (days, second) = (unix_seconds.div_euclid(86_400), unix_seconds.rem_euclid(86_400));
    let since_march_0 = days + 719_468;
    let first_day = |year: i64| year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 400 years have 146,097 days; near the turn of a year the estimate is one off
    let mut year = since_march_0 * 400 / 146_097;
    year += i64::from(first_day(year + 1) <= since_march_0);
    year -= i64::from(first_day(year) > since_march_0);
    let day_of_year = since_march_0 - first_day(year);
    let month = (day_of_year * 5 + 2) / 153;
    let day = day_of_year - (month * 153 + 2) / 5 + 1;
    let year = if month > 9 { year + 1 } else { year };
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {} {year} {hours:02}:{minutes:02}:{seconds:02} GMT", MONTHS[month as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        for (text, seconds, date) in [
            ("1970-01-01T00:00:00Z", 0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("2000-02-29T23:59:59Z", 951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            ("2026-05-04T03:02:01Z", 1_777_863_721, "Mon, 04 May 2026 03:02:01 GMT"),
            ("2026-11-21T04:47:11.25Z", 1_795_236_431, "Sat, 21 Nov 2026 04:47:11 GMT"),
            ("2100-03-01T00:00:00Z", 4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(unix_seconds(text), Some(seconds), "{text}");
            assert_eq!(http_date(seconds), date);
        }
    }

    #[test]
    fn every_day_of_eight_centuries_comes_back_and_is_the_day_after_the_last() {
        let mut last = String::new();
        for day in -150_000..150_000i64 {
            let date = http_date(day * 86_400);
            let (day_of_month, rest) = (&date[5..7], &date[8..]);
            let month =
                1 + ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
                    .iter()
                    .position(|name| rest.starts_with(name))
                    .unwrap();
            let year = &rest[4..8];
            let text = format!("{year}-{month:02}-{day_of_month}T00:00:00Z");
            assert_eq!(unix_seconds(&text), Some(day * 86_400), "{date}");
            assert!(text > last, "{text} after {last}");
            last = text;
        }
    }

    #[test]
    fn what_is_no_time_has_no_seconds() {
        for text in [
            "",
            "2026-05-04",
            "2026-05-04T03:02:01+02:00",
            "2026-13-04T03:02:01Z",
            "xT1:2:3Z",
            "T",
            "99999999999-1-1T0:0:0Z",
        ] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }
}
