//! lru_crawler: dumps of keys; its switches are kept, its pace is the store's own business.

use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::Fault;
use larder_protocol::number::parse_u32;

use crate::memcached::dump::{Classes, Dump};
use crate::memcached::flow::Flow;
use crate::memcached::line::Line;
use crate::memcached::text::{ERROR, OK};

/// Longest sleep between two items, microseconds.
const SLEEP_MAX_US: u32 = 1_000_000;

/// lru_crawler enable | disable | sleep | tocrawl | crawl | metadump | mgdump
pub(crate) fn lru_crawler(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let crawler = &line.shared.crawler;
    let off = !crawler.load(Relaxed);
    let reply: &[u8] = match line.tokens[..] {
        [b"enable"] => {
            if crawler.swap(true, Relaxed) {
                b"ERROR failed to start lru crawler thread\r\n"
            } else {
                OK
            }
        }
        [b"disable"] => {
            crawler.store(false, Relaxed);
            OK
        }
        [b"sleep", us] => match parse_u32(us) {
            None => Fault::BadLine.reply(),
            Some(us) if us > SLEEP_MAX_US => b"CLIENT_ERROR sleep must be one second or less\r\n",
            Some(us) => {
                line.shared.tuning.crawler_sleep_us.set(us.into());
                OK
            }
        },
        [b"tocrawl", items] => match parse_u32(items) {
            None => Fault::BadLine.reply(),
            Some(items) => {
                line.shared.tuning.crawler_items.set(items.into());
                OK
            }
        },
        [b"crawl" | b"metadump" | b"mgdump", _] if off => b"CLIENT_ERROR lru crawler disabled\r\n",
        [b"metadump" | b"mgdump", _] if !line.cx.shared.settings.dump => {
            if line.tokens[0] == b"metadump" {
                b"ERROR metadump not allowed\r\n"
            } else {
                b"ERROR key dump not allowed\r\n"
            }
        }
        [verb @ (b"crawl" | b"metadump" | b"mgdump"), ids] => match Classes::parse(ids, verb != b"crawl") {
            None => b"BADCLASS invalid class id\r\n",
            Some(classes) => {
                line.shared.crawls.fetch_add(1, Relaxed);
                line.out.put(OK);
                return match verb {
                    b"metadump" => Flow::Dump(Dump::meta(classes)),
                    b"mgdump" => Flow::Dump(Dump::mg(classes)),
                    _ => Flow::Next,
                };
            }
        },
        _ => ERROR,
    };
    line.out.put(reply);
    Flow::Next
}
