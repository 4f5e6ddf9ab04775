//! Exact results of queueing theory and the standards: the model is tested against them, and they bound what
//! any machine can do.

/// Share of arrivals lost by M/M/1/K at this load, `capacity` counting the one in service (Kleinrock, Queueing
/// Systems I, section 3.6).
pub fn mm1k_loss(load: f64, capacity: u32) -> f64 {
    if (load - 1.0).abs() < 1e-12 {
        return 1.0 / f64::from(capacity + 1);
    }
    (1.0 - load) * load.powi(capacity as i32) / (1.0 - load.powi(capacity as i32 + 1))
}

/// Mean number in an M/M/1/K system.
pub fn mm1k_mean(load: f64, capacity: u32) -> f64 {
    let weights = (0..=capacity).map(|n| load.powi(n as i32));
    let sum: f64 = weights.clone().sum();
    weights.enumerate().map(|(n, weight)| n as f64 * weight).sum::<f64>() / sum
}

/// Mean number in an M/D/1 system at a load below 1 (Pollaczek-Khinchine).
pub fn md1_mean(load: f64) -> f64 {
    load + load * load / (2.0 * (1.0 - load))
}

/// Share of arrivals lost by M/D/1/K, and the mean number in it, `capacity` counting the one in service.
///
/// From the chain embedded at departures, as for M/G/1/K (Gross and Harris, Fundamentals of Queueing Theory,
/// section 5.1.7): the loss is 1 − 1/(π₀ + ρ).
pub fn md1k(load: f64, capacity: u32) -> (f64, f64) {
    let capacity = capacity as usize;
    // probabilities of k arrivals during a service
    let mut arrivals = vec![(-load).exp()];
    for k in 1..=capacity {
        arrivals.push(arrivals[k - 1] * load / k as f64);
    }
    let mut left = vec![1.0];
    for j in 0..capacity - 1 {
        let reached = left[0] * arrivals[j] + (1..=j).map(|i| left[i] * arrivals[j - i + 1]).sum::<f64>();
        left.push((left[j] - reached) / arrivals[0]);
    }
    let sum: f64 = left.iter().sum();
    let scale = left[0] / sum + load;
    let loss = 1.0 - 1.0 / scale;
    let below: f64 = left.iter().enumerate().map(|(n, p)| n as f64 * p / sum / scale).sum();
    (loss, below + capacity as f64 * loss)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-3), "{a} is not {b}");
    }

    #[test]
    fn a_place_for_one_is_erlangs_formula_whatever_the_service() {
        for load in [0.1, 0.5, 1.0, 3.0] {
            let erlang = load / (1.0 + load);
            close(mm1k_loss(load, 1), erlang);
            close(md1k(load, 1).0, erlang);
        }
    }

    #[test]
    fn a_large_buffer_is_as_good_as_an_endless_one() {
        close(md1k(0.7, 100).1, md1_mean(0.7));
        close(mm1k_mean(0.7, 200), 0.7 / 0.3);
        assert!(md1k(0.7, 100).0.abs() < 1e-12);
    }

    #[test]
    fn overload_loses_what_exceeds_the_capacity() {
        assert!((md1k(2.0, 20).0 - 0.5).abs() < 1e-6);
        assert!((mm1k_loss(2.0, 40) - 0.5).abs() < 1e-6);
    }
}
