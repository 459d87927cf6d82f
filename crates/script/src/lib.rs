//! Scripts: Lua 5.1 in a box, with Redis's words for it.
//!
//! ```text
//! source ─► Engine::compile ─► Engine::begin, go_on ─► redis.call ─► Caller::call ─► a reply, as Lua values
//!                                   │
//!                                   └─► End::Value ─► Engine::write ─► Sink: the reply of the script
//! ```
//!
//! - `engine`: the state of one worker, what a run is, its memory; `running`: what others see of it, and what ends it
//! - `collector`: when a state is collected
//! - `strand`: the stack that scripts run on, which is left for what they ask; `berth`: where a state stays
//! - `sandbox.lua`: what scripts see, none of which they can change; `sandbox`: what of it is Rust
//! - `reply`: replies into Lua values and back, `nesting`: tables in one another; `answer`: what a failed script is told
//! - `variables`: whether a library keeps something from one call to the next; `tail`: returned calls, which keep their line
//! - `pattern`, `json`, `msgpack`, `pack`, `bits`, `random`: libraries that scripts have
//!
//! Lua calls Rust, and from there Rust calls nothing of a script's. So only Lua's own depth counts, which has a bound. Errors
//! that a script may catch are Lua values; what ends a script cannot be caught.
#![forbid(unsafe_code)]

mod answer;
mod berth;
mod bits;
mod collector;
mod engine;
mod json;
mod msgpack;
mod nesting;
mod pack;
mod pattern;
mod random;
mod reply;
mod running;
mod sandbox;
mod strand;
mod tail;
mod variables;

pub use berth::Berth;
pub use engine::{
    Compiled, End, Engine, Functions, Given, Kind, Outcome, Pace, Registered, is_long_text, sha1_hex,
};
pub use running::{Account, Caller, Kill, Level, Running, Shown, Sink, Stop, Tick};
