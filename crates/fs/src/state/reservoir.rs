//! How fast writers may fill the log, by how full it is: as fast as they can while it has room, as fast as the bucket takes bytes
//! near its end, and less behind that.
//!
//! ```text
//!   bytes a second
//!     any  |-----------------.
//!          |                 :  unlimited below `from`
//!          |                  .
//!          |                   '.        drain / x, where x goes from 0 to 1
//!   drain  |                     '-._
//!          |                         '-._    drain * y, where y goes from 1 to 0
//!          +-----------------+------+-----+--+  bytes of the log in use
//!          0               from     at   end limit
//! ```
//!
//! The bucket gives room back in steps, a checkpoint of a thirty-second of the log at a time, so the level goes up and down by that.
//! With a rate that does not fall below the bucket's the highest level would be the limit.

/// Writers are slowed from this part of the log on: seven eighths.
const FROM: (u64, u64) = (7, 8);
/// Here they have the rate of the bucket.
const AT: (u64, u64) = (15, 16);
/// Here next to nothing. The rest of the log is for changes of names, and for clients that write little.
const END: (u64, u64) = (63, 64);
/// Seconds that the part up to `AT` takes at least if nothing is known of the bucket.
const LEAST_SECONDS: u64 = 64;
/// The least rate.
const LEAST: u64 = 4096;

/// How full the log is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Bytes of segments with records that the bucket does not have.
    pub(crate) used: u64,
    /// Bytes that the log may have.
    pub(crate) limit: u64,
    /// Bytes a second that the bucket has taken lately, if anything is known of it.
    pub(crate) drain: Option<u64>,
}

/// Bytes a second for all writers together; `None`: as many as they like.
pub(crate) fn writers_rate(level: &Level) -> Option<u64> {
    let part = |(number, of): (u64, u64)| level.limit / of * number;
    let (from, at, end) = (part(FROM), part(AT), part(END));
    let span = at.checked_sub(from).filter(|span| *span > 0)?;
    let above = level.used.checked_sub(from).filter(|above| *above > 0)?;
    let drain = u128::from(level.drain.unwrap_or(span / LEAST_SECONDS));
    let rate = match level.used < at {
        true => drain * u128::from(span) / u128::from(above),
        false => {
            let left = end.saturating_sub(level.used);
            drain * u128::from(left) / u128::from(end.saturating_sub(at).max(1))
        }
    };
    Some(u64::try_from(rate).unwrap_or(u64::MAX).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn rate(used: u64, drain: u64) -> Option<u64> {
        let limit = 8 * GIB;
        let drain = Some(drain);
        writers_rate(&Level { used, limit, drain })
    }

    #[test]
    fn below_seven_eighths_nobody_is_slowed() {
        for used in [0, GIB, 7 * GIB] {
            assert_eq!(rate(used, 10 * MIB), None);
        }
    }

    #[test]
    fn it_falls_smoothly_from_more_than_any_disk_over_the_speed_of_the_bucket_to_nothing() {
        let drain = 10 * MIB;
        assert!(rate(7 * GIB + MIB, drain).unwrap() > 4 * GIB);
        let mut before = u64::MAX;
        for step in 1..=512 {
            let now = rate(7 * GIB + step * MIB, drain).unwrap();
            assert!(now <= before && now >= drain);
            // No cliff: the next MiB changes it by its own share.
            assert!(step == 1 || before - now <= before / (step - 1));
            before = now;
        }
        assert_eq!(rate(7 * GIB + 512 * MIB, drain), Some(drain));
        for step in 513..=896 {
            let now = rate(7 * GIB + step * MIB, drain).unwrap();
            assert!(now <= before && before - now <= drain / 384 + 1);
            before = now;
        }
        for used in [7 * GIB + 896 * MIB, 8 * GIB, 9 * GIB] {
            assert_eq!(rate(used, drain), Some(LEAST));
        }
    }

    /// Writers that want more than the bucket takes, which gives room back in steps of a thirty-second of the log.
    #[test]
    fn the_log_is_never_full_though_it_gets_room_in_steps() {
        for drain in [MIB, 10 * MIB, 100 * MIB] {
            let (limit, step) = (8 * GIB, 8 * GIB / 32);
            let (mut used, mut taken, mut highest) = (6 * GIB, 0, 0);
            for _ in 0..100_000 {
                // A hundredth of a second.
                let level = Level {
                    used,
                    limit,
                    drain: Some(drain),
                };
                let rate = writers_rate(&level);
                used += rate.unwrap_or(u64::MAX).min(GIB) / 100;
                taken += drain / 100;
                if taken >= step {
                    (used, taken) = (used - step, taken - step);
                }
                highest = highest.max(used);
            }
            assert!(highest < limit / 64 * 63, "{highest}");
        }
    }

    #[test]
    fn without_an_answer_of_the_bucket_the_end_of_the_log_lasts_for_a_minute() {
        let level = Level {
            used: 7 * GIB + 512 * MIB,
            limit: 8 * GIB,
            drain: None,
        };
        assert_eq!(writers_rate(&level), Some(512 * MIB / 64));
        // It took bytes before, and takes none any more.
        assert_eq!(rate(7 * GIB + 512 * MIB, 0), Some(LEAST));
        let tiny = Level {
            used: 100,
            limit: 100,
            drain: None,
        };
        assert!(writers_rate(&tiny).is_none_or(|rate| rate > 0));
    }
}
