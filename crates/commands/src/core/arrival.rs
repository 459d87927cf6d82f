//! How a connection stands when it sends its first bytes, and when its login is forgotten: either may make its client one of those
//! that must log in, of which there may be so many.

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

    /// Its login is forgotten. It is not refused, however many unauthenticated clients there are.
    pub fn forget(&mut self, cx: &Context<'_, '_>) {
        self.begin(&cx.shared.access);
        if self.admitted {
            self.unauthenticated = None;
        } else if self.unauthenticated.is_none() {
            self.unauthenticated = unauthenticated(cx, usize::MAX);
        }
    }
}

/// One more unauthenticated client; `None` if there are `max`.
pub(crate) fn unauthenticated(cx: &Context<'_, '_>, max: usize) -> Option<UnauthenticatedClient> {
    UnauthenticatedClient::new(&cx.shared.unauthenticated, cx.host.clock_us() / 1000, max)
}
