//! SVG as text: a few elements, numbers with one digit behind the point, text escaped.

use std::fmt::Write;

/// Escapes text for elements and attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// A drawing in a string.
#[derive(Debug, Default)]
pub struct Svg {
    pub text: String,
}

/// The place of a text relative to its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

// Writing into a string cannot fail, so the results of `write!` are dropped.
impl Svg {
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(
            self.text,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let ((x, y), anchor, text) = (at, anchor.word(), escape(text));
        let _ = write!(
            self.text,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// Text turned by `degrees` around its point.
    pub fn turned(&mut self, class: &str, at: (f64, f64), degrees: f64, anchor: Anchor, text: &str) {
        let ((x, y), anchor, text) = (at, anchor.word(), escape(text));
        let _ = write!(
            self.text,
            r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate({degrees})" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// A path through `points`; closed when `close`.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)], close: bool) {
        let _ = write!(self.text, r#"<path class="{class}" d=""#);
        for (at, (x, y)) in points.iter().enumerate() {
            let _ = write!(self.text, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
        }
        self.text.push_str(if close { "Z\"/>" } else { "\"/>" });
    }

    /// A dot with a text under the pointer.
    pub fn dot(&mut self, class: &str, at: (f64, f64), title: &str) {
        let ((x, y), title) = (at, escape(title));
        let _ = write!(
            self.text,
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3"><title>{title}</title></circle>"#
        );
    }

    /// A box with a text under the pointer.
    pub fn bar(&mut self, class: &str, x: f64, width: f64, y: (f64, f64), title: &str) {
        let (top, height, title) = (y.0.min(y.1), (y.0 - y.1).abs(), escape(title));
        let _ = write!(
            self.text,
            r#"<rect class="{class}" x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}"><title>{title}</title></rect>"#
        );
    }
}
