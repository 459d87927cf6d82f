//! The standing of a connection when it sends its first bytes, and when its login is forgotten. Either may make its client an
//! unauthenticated one, and the number of these is limited.

use super::access::Standing;
use super::context::Context;
use super::unauthenticated::UnauthenticatedClient;

impl Standing {
    /// The standing of a connection that sends its first bytes.
    pub fn new(cx: &Context<'_, '_>) -> Standing {
        let mut standing = Standing::of_nobody();
        standing.begin(&cx.shared.access);
        if !standing.admitted {
            standing.unauthenticated = unauthenticated(cx, cx.shared.settings.unauthenticated_max);
        }
        standing
    }

    /// Forgets its login. The client is not refused, however many unauthenticated ones there are.
    pub fn forget(&mut self, cx: &Context<'_, '_>) {
        self.begin(&cx.shared.access);
        if self.admitted {
            self.unauthenticated = None;
        } else if self.unauthenticated.is_none() {
            self.unauthenticated = unauthenticated(cx, usize::MAX);
        }
    }
}

/// Counts one more unauthenticated client; `None` if there are `max`.
pub(crate) fn unauthenticated(cx: &Context<'_, '_>, max: usize) -> Option<UnauthenticatedClient> {
    UnauthenticatedClient::new(&cx.shared.unauthenticated, cx.host.clock_us() / 1000, max)
}
