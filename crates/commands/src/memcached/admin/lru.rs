//! lru: memcached's segments do not exist here; their tuning is checked, kept and has no effect.

use larder_protocol::number::{parse_i32, parse_u32};

use crate::memcached::flow::Flow;
use crate::memcached::line::Line;
use crate::memcached::text::{ERROR, OK};
use crate::memcached::tuning::Tuning;

/// Most per cent of a class that hot and warm may have together.
const PERCENTS_MAX: u32 = 80;

/// lru tune | mode | temp_ttl
pub(crate) fn lru(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let tuning = &line.shared.tuning;
    let reply: &[u8] = match line.tokens[..] {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => tune(tuning, hot, warm, hot_factor, warm_factor),
        [b"mode", mode @ (b"flat" | b"segmented"), ..] => {
            tuning.lru_segmented.set(u64::from(mode == b"segmented"));
            OK
        }
        [b"temp_ttl", seconds, ..] => match parse_i32(seconds) {
            Some(seconds) => {
                tuning.temp_lru.set(u64::from(seconds >= 0));
                if let Ok(seconds) = u64::try_from(seconds) {
                    tuning.temporary_ttl_s.set(seconds);
                }
                OK
            }
            None => ERROR,
        },
        _ => ERROR,
    };
    line.out.put(reply);
    Flow::Next
}

fn tune(tuning: &Tuning, hot: &[u8], warm: &[u8], hot_factor: &[u8], warm_factor: &[u8]) -> &'static [u8] {
    let factor = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    let (Some(hot), Some(warm)) = (parse_u32(hot), parse_u32(warm)) else { return ERROR };
    let (Some(hot_factor), Some(warm_factor)) = (factor(hot_factor), factor(warm_factor)) else {
        return ERROR;
    };
    if hot.saturating_add(warm) > PERCENTS_MAX {
        b"ERROR hot and warm pcts must not exceed 80\r\n"
    } else if hot_factor > 0.0 && warm_factor > 0.0 {
        tuning.hot_lru_pct.set(hot.into());
        tuning.warm_lru_pct.set(warm.into());
        tuning.hot_max_factor.set_ratio(hot_factor);
        tuning.warm_max_factor.set_ratio(warm_factor);
        OK
    } else {
        b"ERROR hot/warm age factors must be greater than 0\r\n"
    }
}
