//! The page: plain files of `dashboard/`, part of the program.
//!
//! They load nothing from elsewhere and nothing is built: what is committed is what a browser is sent. The policy that
//! goes with the page lets it run its own scripts and ask this server, and nothing else: what a client calls a key is
//! text to it, whatever it is.

use super::http::{CSS, HTML, JAVASCRIPT};

/// A file.
#[derive(Debug)]
pub struct Asset {
    /// Its path.
    pub path: &'static str,
    /// Its content type.
    pub content_type: &'static str,
    /// Its text.
    pub text: &'static str,
}

const fn asset(path: &'static str, content_type: &'static str, text: &'static str) -> Asset {
    Asset { path, content_type, text }
}

/// All files, the page itself first.
pub const ASSETS: &[Asset] = &[
    asset("/", HTML, include_str!("../../../../dashboard/index.html")),
    asset("/style.css", CSS, include_str!("../../../../dashboard/style.css")),
    asset("/app.js", JAVASCRIPT, include_str!("../../../../dashboard/app.js")),
    asset("/charts.js", JAVASCRIPT, include_str!("../../../../dashboard/charts.js")),
    asset("/map.js", JAVASCRIPT, include_str!("../../../../dashboard/map.js")),
    asset("/forecast.js", JAVASCRIPT, include_str!("../../../../dashboard/forecast.js")),
    asset("/latency.js", JAVASCRIPT, include_str!("../../../../dashboard/latency.js")),
    asset(
        "/vendor/uPlot-1.6.32.js",
        JAVASCRIPT,
        include_str!("../../../../dashboard/vendor/uPlot-1.6.32/uPlot.iife.min.js"),
    ),
    asset(
        "/vendor/uPlot-1.6.32.css",
        CSS,
        include_str!("../../../../dashboard/vendor/uPlot-1.6.32/uPlot.min.css"),
    ),
    asset(
        "/vendor/uPlot-1.6.32.LICENSE",
        super::http::TEXT,
        include_str!("../../../../dashboard/vendor/uPlot-1.6.32/LICENSE"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all files: what a browser loads once.
    const BYTES_MAX: usize = 160 << 10;

    #[test]
    fn the_page_is_small_and_asks_for_its_own_files_alone() {
        assert!(ASSETS.iter().map(|asset| asset.text.len()).sum::<usize>() <= BYTES_MAX);
        let page = ASSETS[0].text;
        let wanted = page.split(['"', '\'']).filter(|text| text.starts_with('/') && text.contains('.'));
        let mut count = 0;
        for path in wanted {
            assert!(ASSETS.iter().any(|asset| asset.path == path), "{path} is not there");
            count += 1;
        }
        assert!(count >= 6, "{count}");
        for asset in ASSETS.iter().filter(|asset| !asset.path.starts_with("/vendor/")) {
            for elsewhere in ["http:", "https:", "//cdn"] {
                let found = asset.text.match_indices(elsewhere).any(|(at, _)| {
                    // A name of a kind of element, which is not asked for.
                    !asset.text[at..].starts_with("http://www.w3.org/2000/svg")
                });
                assert!(!found, "{} names {elsewhere}", asset.path);
            }
        }
    }

    #[test]
    fn nothing_of_the_page_is_what_its_policy_forbids() {
        for inline in [" style=", " onclick=", " onload=", "<style", "javascript:"] {
            assert!(!ASSETS[0].text.contains(inline), "{inline}");
        }
        for asset in ASSETS {
            for sink in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!asset.text.contains(sink), "{}: {sink}", asset.path);
            }
        }
    }
}
