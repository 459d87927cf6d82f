//! What HELP replies: what the subcommands of a command do.

use super::call::Call;
use super::fail::Done;
use super::reply::put_simple;

/// Replies what a container's subcommands do.
pub(crate) fn help(call: &mut Call<'_, '_, '_>, container: &str) -> Done {
    let Some((row, _)) = call.shared.rows.find(container.as_bytes()) else { return Ok(()) };
    let rows = row.subcommands();
    call.array(1 + 2 * rows.len());
    let name = container.to_ascii_uppercase();
    put_simple(call.out, &format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for row in rows {
        put_simple(call.out, format!("{} {}", row.short_name().to_ascii_uppercase(), row.usage).trim_end());
        put_simple(call.out, &format!("    {}", row.summary));
    }
    Ok(())
}
