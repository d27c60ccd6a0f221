//! The dashboard's files, in the binary: nothing is asked for elsewhere, and nothing may be.

/// Content policy for browsers: show these pages and ask this daemon, nothing else.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file.
pub(super) struct Page {
    path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const fn page(path: &'static str, content_type: &'static str, body: &'static str) -> Page {
    Page {
        path,
        content_type,
        body,
    }
}

const PAGES: [Page; 7] = [
    page("/", HTML, include_str!("assets/dashboard.html")),
    page("/overview", HTML, include_str!("assets/overview.html")),
    page("/overview.js", SCRIPT, include_str!("assets/overview.js")),
    page(
        "/dashboard.css",
        STYLE,
        include_str!("assets/dashboard.css"),
    ),
    page("/dashboard.js", SCRIPT, include_str!("assets/dashboard.js")),
    page("/uplot.css", STYLE, include_str!("assets/uPlot.min.css")),
    page(
        "/uplot.js",
        SCRIPT,
        include_str!("assets/uPlot.iife.min.js"),
    ),
];

/// The file at this path.
pub(super) fn find(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

/// The page of all caches.
pub(super) fn overview() -> &'static Page {
    &PAGES[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_elsewhere() {
        for page in &PAGES {
            let body = page.body.replace("http://www.w3.org/2000/svg", "");
            // uPlot names its home in a comment.
            let body = body.replace("https://github.com/leeoniya/uPlot", "");
            let elsewhere = body.contains("http://") || body.contains("https://");
            assert!(!elsewhere, "{}", page.path);
        }
    }

    #[test]
    fn everything_that_the_page_names_is_there() {
        let both = find("/").unwrap().body.to_owned() + overview().body;
        let named = |attribute: &'static str| {
            both.split(attribute)
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
        };
        let files: Vec<&str> = named("src=\"").chain(named("href=\"")).collect();
        assert!(files.len() >= 8, "{files:?}");
        for file in files.iter().filter(|file| !file.starts_with("data:")) {
            let served = find(&format!("/{file}")).is_some() || *file == "metrics";
            assert!(served, "{file}");
        }
    }
}
