//! Runs operations on a server without sockets and compares every reply with the model's.

use super::{Model, OP_BYTES, Op};
use crate::local::{Local, START};
use crate::pattern::{Captures, Match, Pattern, escaped};
use crate::pipelines::Ways;

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

/// Operations of a pipeline, at most.
const PIPELINE: usize = 32;
/// One operation in this many stays as it is; the others become plain ones.
const UNUSUAL: u8 = 8;

/// Applies operations, mostly plain ones, to a new server and a new model. Sends them to other servers in
/// pipelines of 1 to 32, received in several ways ([`Ways`]).
///
/// # Errors
/// The first reply that differs from the model's, or between the ways; or a count that differs.
pub fn check_pipelines(bytes: &[[u8; OP_BYTES]]) -> Result<(), String> {
    let mut ways = Ways::new(false)?;
    let (mut model, mut captures) = (Model::new(START), Captures::new());
    let mut expected = Pattern::default();
    let mut left = 0;
    for bytes in bytes {
        let mut op = Op::decode(bytes);
        // Tokens differ between servers: expired items take versions in some of them. So no operation names a
        // token.
        if bytes[10] / 8 % UNUSUAL != 0 || op.names_token() {
            op = op.plainly();
        }
        if left == 0 {
            ways.together(Some(&std::mem::take(&mut expected)))?;
            left = 1 + usize::from(bytes[6] ^ bytes[9]) % PIPELINE;
        }
        left -= 1;
        let exchange = model.apply_alone(&op);
        if exchange.seconds > 0 {
            ways.together(Some(&std::mem::take(&mut expected)))?;
            ways.pass(exchange.seconds as i64 * 1000);
            continue;
        }
        let sent = exchange.sent.render(&captures)?;
        let got = ways.ask(&sent);
        if exchange.expected.matches(got, &mut captures) != Match::Full(got.len()) {
            let (expected, got) = (exchange.expected.describe(&captures), escaped(got));
            return Err(ways.unlike(&sent, &format!("expected {expected}\n  got      {got}")));
        }
        expected.join(&exchange.expected);
        tokens_grow(&model, &captures)?;
    }
    ways.together(Some(&expected))
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
