//! Raw latencies, kept completely in the form that HdrHistogram's tools in any language read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The quantiles that tables show, with their names.
pub const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// One histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The target.
    pub target: String,
    /// The kind of requests: "get, during the shift".
    pub what: String,
    /// The two times of a latency: "open loop, from the intended send" or "closed loop, from the send".
    pub clock: String,
    /// Values in it.
    pub count: u64,
    /// Values that were too long for it, and are not in it.
    pub over_range: u64,
    /// Nanoseconds, HdrHistogram V2 compressed, base64.
    pub hdr_ns: String,
}

impl Latency {
    /// Packs a histogram of nanoseconds.
    ///
    /// # Errors
    /// [`Error::NotValid`] when it cannot be packed.
    pub fn new(
        target: &str,
        what: &str,
        clock: &str,
        latency_ns: &Histogram<u64>,
        over_range: u64,
    ) -> Result<Latency, Error> {
        let mut packed = Vec::new();
        V2DeflateSerializer::new()
            .serialize(latency_ns, &mut packed)
            .map_err(|error| Error::NotValid(format!("a histogram cannot be written: {error:?}")))?;
        Ok(Latency {
            target: target.to_owned(),
            what: what.to_owned(),
            clock: clock.to_owned(),
            count: latency_ns.len(),
            over_range,
            hdr_ns: STANDARD.encode(packed),
        })
    }

    /// Unpacks it.
    ///
    /// # Errors
    /// The text is damaged, or has another form.
    pub fn histogram(&self) -> Result<Histogram<u64>, String> {
        let damaged = |why: String| format!("the histogram of {} {}: {why}", self.target, self.what);
        let packed = STANDARD.decode(&self.hdr_ns).map_err(|error| damaged(error.to_string()))?;
        Deserializer::new().deserialize(&mut packed.as_slice()).map_err(|error| damaged(format!("{error:?}")))
    }
}

/// A quantile in microseconds; none of an empty histogram.
pub fn quantile_us(latency_ns: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!latency_ns.is_empty()).then(|| latency_ns.value_at_quantile(quantile) as f64 / 1e3)
}
