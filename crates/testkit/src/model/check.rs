//! Runs operations on a server without sockets and compares every reply with the model's.

use super::{Model, Op};
use crate::local::{Local, START};
use crate::pattern::{Captures, Match, escaped};

/// Applies `ops` to a fresh server and a fresh model.
///
/// # Errors
/// The first reply that differs, with the operation.
pub fn check(ops: &[Op]) -> Result<(), String> {
    let mut local = Local::new(&[])?;
    let mut connection = local.connection();
    let mut model = Model::new(START);
    let mut captures = Captures::new();
    let mut before = String::new();
    for (index, op) in ops.iter().enumerate() {
        let exchange = model.apply(op);
        if exchange.seconds > 0 {
            local.shift(exchange.seconds as i64 * 1000);
            local.maintain(4);
            before.push_str(&format!("\n  {} s later", exchange.seconds));
            continue;
        }
        let sent = exchange.sent.render(&captures)?;
        local.exchange(&mut connection, &sent);
        let got = connection.sent();
        let whole = exchange.expected.matches(got, &mut captures) == Match::Full(got.len());
        if !whole {
            return Err(format!(
                "operation {index}, after{before}\n  sent     {}\n  expected {}\n  got      {}",
                escaped(&sent),
                exchange.expected.describe(&captures),
                escaped(got)
            ));
        }
        before.push_str(&format!("\n  {}", escaped(&sent)));
        connection.forget();
        tokens_grow(&model, &captures)?;
    }
    Ok(())
}

fn tokens_grow(model: &Model, captures: &Captures) -> Result<(), String> {
    for names in model.tokens() {
        let mut last = 0;
        for name in names {
            let digits = captures.get(&name).ok_or(format!("{name} was shown and not seen"))?;
            let token: u64 = String::from_utf8_lossy(digits).parse().map_err(|_| "a token has 64 bits")?;
            if token <= last || token >= 1 << 63 {
                return Err(format!("token {token} follows {last}"));
            }
            last = token;
        }
    }
    Ok(())
}
