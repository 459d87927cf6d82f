//! A run as one page of HTML that needs no network: pictures, tables, checks, machine, command.
//!
//! Pictures are SVG, drawn here: they can be read in the page's source, scaled and printed, and follow the reader's light or dark
//! theme through the style sheet. The script adds only interaction (values under the pointer, a button for the theme); without it
//! everything is still there. The page's content policy forbids all requests.

mod axis;
mod bars;
mod chart;
mod lines;
mod page;
mod svg;

use crate::results::Run;

/// The page.
pub fn html(run: &Run) -> String {
    page::html(run)
}
