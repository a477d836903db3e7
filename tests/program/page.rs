//! The page of a gateway, in a real browser.
//!
//! * `happened`: what its list of messages has.

mod happened;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::admin_http::{address, put_token, text};
use crate::support::browser::Browser;
use crate::support::nfs::{Handle, Stable};
use crate::support::{Gateway, Place};
use crate::waits::Away;

const TOKEN: &str = "the-token-of-the-tests-of-the-page";

/// File names that attack the programs that show them.
const HOSTILE: [&[u8]; 6] = [
    b"<img src=x onerror=\"window.hacked=1\">",
    b"<svg onload=window.hacked=1><script>window.hacked=1",
    b"new\nline\x1b[2J",
    "evil\u{202e}gpj.exe\u{2066}".as_bytes(),
    b"no UTF-8 \xff\xfe",
    "long \u{5d0}\u{5d1} \u{200b}".as_bytes(),
];

/// What `document.body` has to contain.
fn shows(part: &str) -> String {
    format!("document.body.innerText.includes({})", json!(part))
}

/// A gateway and a browser at its page.
fn opened(place: &Place, flags: &[&str]) -> (Gateway, Browser, String) {
    let own = ["--admin-listen=127.0.0.1:0", "--checkpoint-interval=1s"];
    let gateway = place.serve_with("data", &[&own, flags].concat());
    let page = format!("http://{}/", address(&gateway));
    let browser = Browser::open(&page);
    (gateway, browser, page)
}

/// Files of these names in the root, which are written and read until the test of the page has ended.
fn under_load<T>(gateway: &Gateway, names: &[&[u8]], test: impl FnOnce() -> T) -> T {
    /// Ends the load, also when the test fails.
    struct Ended<'a>(&'a AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = gateway.client();
            let root = client.mount();
            let files: Vec<Handle> = names
                .iter()
                .map(|name| client.create(&root, name))
                .collect();
            while !over.load(Ordering::Relaxed) {
                for file in &files {
                    client.write(file, 0, &[7; 4000], Stable::FileSync).unwrap();
                    client.read(file, 0, 4000).unwrap();
                }
            }
        });
        let _ended = Ended(&over);
        test()
    })
}

/// The number of rows of a table.
fn rows(id: &str) -> String {
    format!("Number(document.querySelector('#{id} .table').dataset.rows)")
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn under_load_the_page_shows_plots_clients_files_and_requests() {
    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    under_load(&gateway, &[b"the busy file"], || {
        browser.until("document.getElementById('word').textContent === 'Healthy'");
        browser.until(&shows("/the busy file"));
        browser.until(&format!("{} > 0", rows("requests")));
        for (id, part) in [
            ("clients", "127.0.0.1"),
            ("procedures", "WRITE"),
            ("requests", "publish"),
            ("waits", "flush"),
            ("reads", "iB/s"),
            ("limits", " of "),
            ("limits", " % of the parts of metadata tables in memory"),
            ("cost", " USD a day"),
        ] {
            let text = format!("document.getElementById('{id}').innerText.includes('{part}')");
            browser.until(&text);
        }
        // Each plot has some points, and a line through them where there was something.
        browser.until(
            "[...document.querySelectorAll('.canvas')].every((one) => one.dataset.points >= 4)",
        );
        browser.until(
            "document.querySelector('#writes .canvas .line0').getAttribute('d').includes('L')",
        );
        browser.until("document.querySelector('#reads .canvas').getAttribute('aria-valuetext').includes('iB/s')");
        browser.until(&shows("admin HTTP on http://"));
        browser.photograph("load-light");
        browser.looks(1280, 900, "dark");
        browser.photograph("load-dark");
        browser.looks(360, 740, "light");
        browser.photograph("load-phone");
        browser.looks(1280, 2600, "light");
        browser.photograph("load-all");
        // Missing objects and conditions that do not hold are no errors.
        let metrics = text(&address(&gateway), "/metrics");
        let (good, failed): (Vec<&str>, Vec<&str>) = metrics
            .lines()
            .filter(|line| line.starts_with("forebay_store_request_duration_seconds_count{"))
            .filter(|line| !line.ends_with(" 0"))
            .partition(|line| {
                let mut good = ["ok", "missing", "condition"].iter();
                good.any(|outcome| line.contains(&format!("outcome=\"{outcome}\"")))
            });
        assert!(good.len() >= 3, "{good:?}");
        assert_eq!(failed, [""; 0]);
    });
    let requests = browser.requests();
    // After the first answer only what is new is fetched.
    let later = |one: &&String| one.contains("/api/v1/live?after=") && !one.ends_with("after=0");
    assert!(requests.iter().filter(later).count() >= 2, "{requests:?}");
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn in_an_outage_the_page_says_why_and_how_far_behind_the_bucket_is() {
    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    gateway.client().put("before", &[7; 1000]);
    gateway.flush();
    browser.until("document.getElementById('behind-bytes').textContent === 'nothing'");
    let away = Away::take(&place);
    gateway.client().put("file", &[7; 3 << 20]);
    browser.until("document.getElementById('word').textContent === 'Degraded'");
    browser.until(
        "document.getElementById('problems').innerText.includes('the bucket does not answer')",
    );
    browser.until("document.getElementById('behind-bytes').textContent.includes('3.0 MiB')");
    browser.until("document.querySelector('#past .degraded') !== null");
    browser.until("document.querySelector('#events .warn') !== null");
    assert_eq!(
        browser.eval("document.getElementById('state').getAttribute('aria-live')"),
        "polite"
    );
    browser.photograph("outage-light");
    browser.looks(1280, 900, "dark");
    browser.photograph("outage-dark");
    away.bring_back();
    gateway.flush();
    browser.until("document.getElementById('word').textContent === 'Healthy'");
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn a_gateway_that_is_gone_is_told_and_found_again_after_its_restart() {
    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    browser.until("document.getElementById('word').textContent === 'Healthy'");
    browser.until(&shows("admin HTTP on http://"));
    gateway.kill();
    browser.until("document.getElementById('word').textContent === 'No answer'");
    browser.until("/No answer since \\d\\d:\\d\\d:\\d\\d/.test(document.getElementById('problems').innerText)");
    browser.until("document.getElementById('again').checkVisibility()");
    browser.photograph("no-answer");
    let listen = page.trim_start_matches("http://").trim_end_matches('/');
    let gateway = place.serve_with("data", &[&format!("--admin-listen={listen}")]);
    // It would try by itself, after a while.
    browser.eval("document.getElementById('again').click()");
    browser.until("document.getElementById('word').textContent === 'Healthy'");
    // Samples and messages of the new run come, though they are counted from 1 again.
    gateway.hang_up();
    browser.until(&shows(
        "SIGHUP: the exports of the configuration are in force",
    ));
    let newest = "document.querySelector('#reads .canvas').dataset.points";
    let before = browser.eval(newest);
    browser.until(&format!("Number({newest}) > Number({before})"));
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn hostile_names_are_text() {
    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    under_load(&gateway, &HOSTILE, || {
        browser.until(&format!("{} >= {}", rows("files"), HOSTILE.len()));
        for part in [
            "/<img src=x onerror=\"window.hacked=1\">",
            "/<svg onload=window.hacked=1><script>window.hacked=1",
            "/new\\u{a}line\\u{1b}[2J",
            "/evil\\u{202e}gpj.exe\\u{2066}",
            "/no UTF-8 \u{fffd}",
            "\\u{200b}",
        ] {
            browser.until(&shows(part));
        }
        assert_eq!(browser.eval("window.hacked ?? null"), Value::Null);
        assert_eq!(
            browser.eval("document.querySelectorAll('main img, main script, #files svg').length"),
            0
        );
        // Not one of the characters themselves is in the page.
        assert_eq!(
            browser.eval("/[\\u202e\\u2066\\u200b\\u001b]/.test(document.body.textContent)"),
            false
        );
        browser.looks(360, 740, "dark");
        fits(&mut browser);
        browser.eval("document.getElementById('files').scrollIntoView()");
        browser.photograph("hostile-phone");
        browser.looks(1280, 900, "light");
        browser.photograph("hostile");
    });
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}

/// Asserts that nothing is wider than the window.
#[track_caller]
fn fits(browser: &mut Browser) {
    // The layout of the new width.
    browser.eval(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))",
    );
    let wide = browser.eval(
        "[...document.querySelectorAll('body *:not(.skip):not(.unseen)')]
            .filter((one) => one.getBoundingClientRect().right > innerWidth + 0.5)
            .map((one) => one.outerHTML.slice(0, 200))",
    );
    assert_eq!(wide, json!([]));
    assert_eq!(
        browser.eval("document.documentElement.scrollWidth <= innerWidth"),
        true
    );
}

/// The text with the least contrast that is not large, as `[ratio, text]`.
const LEAST_CONTRAST: &str = "(() => {
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (text) => rgb(text).slice(0, 3).map((one) => one / 255)
        .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
    const ground = (one) => {
        const colour = one ? getComputedStyle(one).backgroundColor : 'rgb(255, 255, 255)';
        return rgb(colour)[3] === 0 ? ground(one.parentElement) : colour;
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let least = [99, ''];
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
        const one = text.parentElement;
        if (text.data.trim() === '' || !one.checkVisibility()) continue;
        const style = getComputedStyle(one);
        const pair = [light(one.closest('svg') ? style.fill : style.color), light(ground(one))].sort((a, b) => b - a);
        const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
        if (ratio < least[0]) least = [ratio, text.data];
    }
    return least;
})()";

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn a_phone_a_dark_room_and_a_light_one_can_show_it() {
    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    under_load(&gateway, &[b"file"], || {
        browser.until(&format!("{} > 0 && {} > 0", rows("clients"), rows("files")));
        let mut grounds = Vec::new();
        for scheme in ["light", "dark"] {
            for width in [1280, 700, 360, 320] {
                browser.looks(width, 740, scheme);
                fits(&mut browser);
            }
            grounds.push(browser.eval("getComputedStyle(document.body).backgroundColor"));
            let least = browser.eval(LEAST_CONTRAST);
            assert!(least[0].as_f64() >= Some(4.5), "{scheme}: {least}");
        }
        assert_ne!(grounds[0], grounds[1]);
    });
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn everything_can_be_reached_and_used_by_keyboard() {
    let place = Place::new();
    let token = place.path("token");
    put_token(&token, TOKEN);
    let flag = format!("--admin-token={}", token.display());
    let (gateway, mut browser, page) = opened(&place, &[&flag]);
    browser.until("document.querySelector('#orders button').checkVisibility()");
    browser
        .until("[...document.querySelectorAll('.canvas')].every((one) => one.dataset.points >= 3)");
    let all = browser.eval(
        "(window.reach = [...document.querySelectorAll('a[href], button, select, [tabindex=\"0\"]')]
            .filter((one) => one.checkVisibility())).length",
    );
    // Each in the order of the page, named, and with a focus that is seen.
    for index in 0..all.as_u64().unwrap() {
        browser.press("Tab");
        let here = browser.eval(
            "(() => { const one = document.activeElement; const style = getComputedStyle(one);
              const named = (one.getAttribute('aria-label') ?? one.innerText ?? '').trim() !== '';
              return [reach.indexOf(one), style.outlineStyle !== 'none' && style.outlineWidth !== '0px', named,
                      one.outerHTML.slice(0, 150)]; })()",
        );
        let good = here[0] == index && here[1] == true && here[2] == true;
        assert!(good, "{index}: {here}");
    }

    // One moment is looked at in all plots at once.
    browser.eval("document.querySelector('.canvas').focus()");
    let value = "document.querySelector('.canvas').getAttribute('aria-valuetext')";
    browser.press("Home");
    let first = browser.eval(value);
    browser.press("End");
    browser.press("ArrowLeft");
    assert_ne!(browser.eval(value), first);
    assert_eq!(
        browser.eval("document.querySelectorAll('.mark .cursor').length > 5"),
        true
    );
    assert!(first.as_str().unwrap().contains("B/s"), "{first}");
    browser.press("Escape");
    assert_eq!(
        browser.eval("document.querySelectorAll('.mark .cursor').length"),
        0
    );

    // A table is sorted, and the other way round.
    browser.eval("document.querySelector('#clients .sort').focus()");
    let sorted = "document.querySelector('#clients th').getAttribute('aria-sort')";
    browser.press("Enter");
    assert_eq!(browser.eval(sorted), "ascending");
    browser.press("Enter");
    assert_eq!(browser.eval(sorted), "descending");

    // Tables and plots have names.
    let nameless =
        "[...document.querySelectorAll('table')].filter((one) => !one.caption?.innerText).length";
    assert_eq!(browser.eval(nameless), 0);
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn orders_need_the_token_which_stays_in_the_tab() {
    let place = Place::new();
    let token = place.path("token");
    put_token(&token, TOKEN);
    let flag = format!("--admin-token={}", token.display());
    let (gateway, mut browser, page) = opened(&place, &[&flag]);
    gateway.client().put("file", &[7; 100_000]);
    browser.until("document.querySelector('#orders button').checkVisibility()");
    let ask = |browser: &mut Browser, token: Option<&str>| {
        browser.eval("document.querySelector('#orders button').focus()");
        browser.press("Enter");
        browser.until("document.getElementById('ask').open");
        if let Some(token) = token {
            browser.types(token);
        }
        browser.press("Enter");
    };
    ask(&mut browser, Some("a-token-that-is-not-the-one"));
    browser.until(&shows("this is not the token of admin_token"));
    let kept = "sessionStorage.getItem('forebay.admin_token')";
    browser.until(&format!("{kept} === null"));
    ask(&mut browser, Some(TOKEN));
    browser.until(&shows("the bucket holds everything up to LSN"));
    browser.photograph("orders");
    // It is not asked for again, and is nowhere else.
    ask(&mut browser, None);
    browser.until("document.querySelectorAll('.said .done').length === 2");
    assert_eq!(browser.eval(kept), TOKEN);
    assert_eq!(
        browser.eval("localStorage.length + document.cookie.length"),
        0
    );
    browser.eval("[...document.querySelectorAll('#orders button')].at(-1).click()");
    assert_eq!(browser.eval(kept), Value::Null);
    for request in browser.requests() {
        assert!(
            !request.contains(TOKEN) && request.starts_with(&page),
            "{request}"
        );
    }
    gateway.stop_cleanly();

    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    browser.until(&shows("orders need admin_token in the configuration"));
    browser.until("!document.querySelector('#orders button').checkVisibility()");
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}

/// The number of the gateway's last sample.
fn newest_sample(page: &str) -> u64 {
    let address = page.trim_start_matches("http://").trim_end_matches('/');
    let live: Value = serde_json::from_str(&text(address, "/api/v1/live")).unwrap();
    live["series"]
        .as_array()
        .unwrap()
        .last()
        .map_or(0, |one| one["sequence"].as_u64().unwrap())
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn a_hidden_tab_asks_for_nothing() {
    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    browser.until("document.getElementById('word').textContent === 'Healthy'");
    browser.until("document.querySelector('.canvas').dataset.points >= 2");
    let hide = |browser: &mut Browser, hidden: bool| {
        browser.eval(&format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});
             document.dispatchEvent(new Event('visibilitychange'))"
        ));
    };
    hide(&mut browser, true);
    let before = browser.requests().len();
    let sample = newest_sample(&page);
    // Meanwhile a page that is seen would have asked for each of these.
    while newest_sample(&page) < sample + 3 {
        browser.eval("new Promise((done) => setTimeout(done, 100))");
    }
    assert_eq!(browser.requests().len(), before);
    hide(&mut browser, false);
    browser.until(&format!(
        "document.querySelector('.canvas').dataset.points >= {}",
        3
    ));
    assert!(browser.requests().len() > before);
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}

#[test]
#[ignore = "needs chromium; .ci/run runs it"]
fn numbers_have_the_units_of_the_command_line() {
    let place = Place::new();
    let (gateway, mut browser, page) = opened(&place, &[]);
    for (script, expected) in [
        ("bytes(0)", "0 B"),
        ("bytes(1023)", "1023 B"),
        ("bytes(1536)", "1.5 KiB"),
        ("bytes(5 * 2 ** 40)", "5.0 TiB"),
        ("bytes(null)", "–"),
        ("rate(2 ** 20)", "1.0 MiB/s"),
        ("latency(0.00034)", "340 µs"),
        ("latency(0.0123)", "12.3 ms"),
        ("latency(2.5)", "2.5 s"),
        ("age(3.14)", "3.1 s"),
        ("age(200)", "3 min 20 s"),
        ("age(90000)", "1 d 1 h"),
        ("number(0)", "0"),
        ("number(0.001)", "< 0.01"),
        ("number(4.1)", "4.1"),
        ("number(12345)", "12,345"),
        ("money(1.8342, 'USD')", "1.83 USD"),
        ("money(0.000123, 'USD')", "0.00012 USD"),
        ("percent(1, 3)", "33 %"),
        (
            "visible('a\\u202eb\\n\\u{e0100}')",
            "a\\u{202e}b\\u{a}\\u{e0100}",
        ),
        (
            "unescaped('/B\\\\xc3\\\\xbcro/a\\\\nb\\\\\\\\n\\\\\"\\\\xff')",
            "/B\u{fc}ro/a\nb\\n\"\u{fffd}",
        ),
        ("clock(NaN)", "at an unknown time"),
    ] {
        let names = "bytes, rate, latency, age, number, money, percent, visible, unescaped, clock";
        let script = format!("import('/page/format.js').then(({{ {names} }}) => {script})");
        assert_eq!(browser.eval(&script), expected, "{script}");
    }
    browser.is_well_behaved(&page);
    gateway.stop_cleanly();
}
