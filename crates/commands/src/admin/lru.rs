//! lru: memcached's segments do not exist here; their tuning is checked, answered and has no effect.

use larder_protocol::number::{parse_i32, parse_u64};

use super::Line;
use crate::flow::Flow;
use crate::text::{ERROR, OK};

/// Most per cent of a class that hot and warm may have together.
const PERCENTS_MAX: u64 = 80;

/// lru tune | mode | temp_ttl
pub(crate) fn lru(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let reply: &[u8] = match line.tokens[..] {
        [b"tune", hot, warm, hot_factor, warm_factor] => tune(hot, warm, hot_factor, warm_factor),
        [b"mode", b"flat" | b"segmented"] => OK,
        [b"temp_ttl", seconds] if parse_i32(seconds).is_some() => OK,
        _ => ERROR,
    };
    line.out.put(reply);
    Flow::Next
}

fn tune(hot: &[u8], warm: &[u8], hot_factor: &[u8], warm_factor: &[u8]) -> &'static [u8] {
    let factor = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    let (Some(hot), Some(warm)) = (parse_u64(hot), parse_u64(warm)) else { return ERROR };
    let (Some(hot_factor), Some(warm_factor)) = (factor(hot_factor), factor(warm_factor)) else {
        return ERROR;
    };
    if hot.saturating_add(warm) > PERCENTS_MAX {
        b"ERROR hot and warm pcts must not exceed 80\r\n"
    } else if hot_factor > 0.0 && warm_factor > 0.0 {
        OK
    } else {
        b"ERROR hot/warm age factors must be greater than 0\r\n"
    }
}
