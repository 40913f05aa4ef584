//! How many requests an address may send: a token bucket for each address, in a map of limited size.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Addresses that have a bucket of their own: 4096 x about 40 bytes. Further addresses share one bucket.
const ADDRESSES_MAX: usize = 4096;

/// Buckets by address. IPv6 is counted by network (/64), because one host has as many addresses there as it wants.
#[derive(Debug)]
pub struct RateLimit {
    per_s: f64,
    burst: f64,
    buckets: HashMap<IpAddr, Bucket>,
    shared: Option<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    filled: f64,
    at: Instant,
}

impl Bucket {
    fn fill(&mut self, now: Instant, per_s: f64, burst: f64) {
        let passed_s = now.saturating_duration_since(self.at).as_secs_f64();
        self.filled = (self.filled + passed_s * per_s).min(burst);
        self.at = now;
    }
}

impl RateLimit {
    /// At most `per_s` requests per second and address, `burst` at once.
    pub fn new(per_s: u32, burst: u32) -> Self {
        Self { per_s: f64::from(per_s.max(1)), burst: f64::from(burst.max(1)), buckets: HashMap::new(), shared: None }
    }

    /// Takes one request from the bucket of an address.
    ///
    /// # Errors
    /// There is one request too many: the seconds to wait.
    pub fn take(&mut self, address: IpAddr, now: Instant) -> Result<(), u64> {
        let key = network(address);
        let (per_s, burst) = (self.per_s, self.burst);
        if !self.buckets.contains_key(&key) && self.buckets.len() >= ADDRESSES_MAX {
            self.buckets.retain(|_, bucket| {
                bucket.fill(now, per_s, burst);
                bucket.filled < burst
            });
        }
        let new = Bucket { filled: burst, at: now };
        let bucket = if self.buckets.len() < ADDRESSES_MAX || self.buckets.contains_key(&key) {
            self.buckets.entry(key).or_insert(new)
        } else {
            self.shared.get_or_insert(new)
        };
        bucket.fill(now, per_s, burst);
        if bucket.filled >= 1.0 {
            bucket.filled -= 1.0;
            return Ok(());
        }
        Err(((1.0 - bucket.filled) / per_s).ceil() as u64)
    }
}

/// The address itself, or the /64 network of an IPv6 address.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn v4(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(n).into()
    }

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let (start, mut limit) = (Instant::now(), RateLimit::new(2, 5));
        let at = |ms| start + Duration::from_millis(ms);
        for _ in 0..5 {
            assert_eq!(limit.take(v4(1), start), Ok(()));
        }
        assert_eq!(limit.take(v4(1), start), Err(1));
        assert_eq!(limit.take(v4(2), start), Ok(()), "another address has its own");
        assert_eq!(limit.take(v4(1), at(499)), Err(1));
        assert_eq!(limit.take(v4(1), at(501)), Ok(()));
        assert_eq!(limit.take(v4(1), at(502)), Err(1));
        let passed = (0..100).filter(|_| limit.take(v4(1), at(100_000)).is_ok()).count();
        assert_eq!(passed, 5, "what was not used is not saved up");
        assert_eq!(limit.take(v4(3), start), Ok(()), "a clock that goes back does no harm");
    }

    #[test]
    fn the_map_stays_bounded_and_forgets_those_who_rest() {
        let (start, mut limit) = (Instant::now(), RateLimit::new(1, 3));
        for n in 0..ADDRESSES_MAX as u32 {
            assert_eq!(limit.take(v4(n), start), Ok(()));
        }
        let others = (0..100).filter(|n| limit.take(v4(1_000_000 + n), start).is_ok()).count();
        assert_eq!((others, limit.buckets.len()), (3, ADDRESSES_MAX), "newcomers share one bucket");
        assert_eq!(limit.take(v4(7), start), Ok(()), "who is known keeps his own");
        assert_eq!(limit.take(v4(2_000_000), start + Duration::from_secs(60)), Ok(()));
        assert_eq!(limit.buckets.len(), 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (start, mut limit) = (Instant::now(), RateLimit::new(1, 1));
        assert_eq!(limit.take("2001:db8::1".parse().unwrap(), start), Ok(()));
        assert_eq!(limit.take("2001:db8::2".parse().unwrap(), start), Err(1));
        assert_eq!(limit.take("2001:db8:0:1::1".parse().unwrap(), start), Ok(()));
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1".parse::<IpAddr>().unwrap());
    }
}
