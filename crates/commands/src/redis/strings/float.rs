//! INCRBYFLOAT: adds to a number in text, by `decimal.rs`.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Hint, Key, Value};

use crate::redis::call::{Call, kept};
use crate::redis::decimal::sum;
use crate::redis::fail::{Done, Fail};

/// Serves INCRBYFLOAT.
pub(crate) fn incrbyfloat(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    _: &Hint<'_>,
    mut args: Args<'_>,
) -> Done {
    let by = args.next().unwrap_or_default();
    loop {
        let (expect, new, attributes) = match call.peek(key)? {
            Some(item) => {
                let Value::Whole(text) = item.value() else { return Err(Fail::NOT_A_FLOAT) };
                (Expect::Unchanged(item.seen()), sum(super::without_spaces(text), by)?, kept(&item))
            }
            None => (Expect::Absent, sum(b"0", by)?, Attributes::default()),
        };
        if call.store(key, new.as_bytes(), &attributes, expect)?.is_ok() {
            return call.bulk(new.as_bytes());
        }
    }
}
