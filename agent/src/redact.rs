//! A recording with its names and addresses replaced, so that it can be shown to anybody.
//!
//! The same word becomes the same stand-in everywhere, and words are replaced one by one
//! (`api-66995f776-72jw2` → `w1-w2-w3`), so that what belongs together by name still does, and the
//! engine decides the same. What is not known to be harmless is replaced.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use jiff::Timestamp;
use serde_json::Value;

/// Fields whose texts are the format's or Kubernetes' own words.
const KEPT: [&str; 20] = [
    "api_version",
    "by",
    "cause",
    "change",
    "class",
    "disruption",
    "how",
    "input",
    "kind",
    "kubernetes",
    "managed_by",
    "phase",
    "protocol",
    "ready",
    "reason",
    "request",
    "resource_version",
    "saw",
    "side",
    "state",
];

/// Stand-ins for IPv4 addresses: the range for benchmarks (RFC 2544).
const V4: u32 = 0xc612_0000;
/// How many of them there are.
const V4_MANY: u32 = 1 << 17;
/// Stand-ins for IPv6 addresses: the documentation prefix (RFC 3849).
const V6: u128 = 0x2001_0db8 << 96;

/// Replaces consistently over a whole recording.
#[derive(Debug, Default)]
pub struct Redactor {
    words: BTreeMap<String, String>,
    v4: BTreeMap<Ipv4Addr, Ipv4Addr>,
    v6: BTreeMap<Ipv6Addr, Ipv6Addr>,
}

impl Redactor {
    /// Replaces what is in one line.
    pub fn value(&mut self, value: &mut Value) {
        self.field("", value);
    }

    fn field(&mut self, name: &str, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(replaced) = self.text(name, text) {
                    *text = replaced;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.field(name, item)),
            Value::Object(fields) => {
                let all = std::mem::take(fields);
                for (key, mut inner) in all {
                    self.field(&key, &mut inner);
                    // Some maps have addresses or names for keys; no field of the format has either.
                    let key = self.key(name, key);
                    fields.insert(key, inner);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn key(&mut self, of: &str, key: String) -> String {
        if of == "exit_codes" {
            return self.replaced(&key);
        }
        self.address(&key).unwrap_or(key)
    }

    fn text(&mut self, field: &str, text: &str) -> Option<String> {
        if let Some(address) = self.address(text) {
            return Some(address);
        }
        if field == "how" {
            return Some(self.sentence(text));
        }
        if KEPT.contains(&field) || text.parse::<Timestamp>().is_ok() {
            return None;
        }
        // `{"change": "version", "object": "v1.33.1"}`
        let is_version = text.strip_prefix('v').is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains('.')
        });
        (!is_version).then(|| self.replaced(text))
    }

    fn address(&mut self, text: &str) -> Option<String> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Some(self.ip(ip).to_string());
        }
        let socket: SocketAddr = text.parse().ok()?;
        Some(SocketAddr::new(self.ip(socket.ip()), socket.port()).to_string())
    }

    fn ip(&mut self, ip: IpAddr) -> IpAddr {
        if ip.is_loopback() || ip.is_unspecified() {
            return ip;
        }
        match ip {
            IpAddr::V4(ip) => {
                let next = u32::try_from(self.v4.len()).unwrap_or(u32::MAX) % V4_MANY;
                let made = Ipv4Addr::from_bits(V4 + next);
                (*self.v4.entry(ip).or_insert(made)).into()
            }
            IpAddr::V6(ip) => {
                let next = u128::try_from(self.v6.len()).unwrap_or(0);
                let made = Ipv6Addr::from_bits(V6 + next + 1);
                (*self.v6.entry(ip).or_insert(made)).into()
            }
        }
    }

    /// Every word replaced; short numbers, which order things, stay.
    fn replaced(&mut self, text: &str) -> String {
        self.each_word(text, |_| true)
    }

    /// In a sentence the words of the language stay: not those that are names, or look like one.
    fn sentence(&mut self, text: &str) -> String {
        let known = self.words.clone();
        self.each_word(text, |word| {
            known.contains_key(word) || word.bytes().any(|byte| byte.is_ascii_digit())
        })
    }

    fn each_word(&mut self, text: &str, is_name: impl Fn(&str) -> bool) -> String {
        let mut out = String::new();
        let mut word = String::new();
        for c in text.chars().chain(Some('\0')) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            let is_number = word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_digit());
            if is_number || !is_name(&word) {
                out.push_str(&word);
            } else {
                let next = self.words.len() + 1;
                let made = self.words.entry(std::mem::take(&mut word));
                out.push_str(made.or_insert_with(|| format!("w{next}")));
            }
            word.clear();
            if c != '\0' {
                out.push(c);
            }
        }
        out
    }
}

/// Writes a redacted copy of a recording; the number of lines written.
///
/// # Errors
/// If a file cannot be read or written, or a line is no JSON (a recording that is cut off ends there).
pub fn redact(from: &Path, to: &Path) -> io::Result<usize> {
    let lines = BufReader::new(File::open(from)?).split(b'\n');
    let mut out = BufWriter::new(File::create(to)?);
    let mut redactor = Redactor::default();
    let mut written = 0;
    for line in lines {
        let Ok(mut value) = serde_json::from_slice::<Value>(&line?) else { break };
        redactor.value(&mut value);
        serde_json::to_writer(&mut out, &value)?;
        out.write_all(b"\n")?;
        written += 1;
    }
    out.flush()?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_addresses_are_replaced_the_same_everywhere() {
        let mut redactor = Redactor::default();
        let mut line = |mut value: Value| {
            redactor.value(&mut value);
            value.to_string()
        };
        let pod = line(json!({
            "at": 5, "input": "cluster", "content": {"change": "pod", "object": {
                "namespace": "bank", "name": "ledger-66995f776-72jw2", "ips": ["10.1.2.3"],
                "owner": {"kind": "ReplicaSet", "name": "ledger-66995f776", "uid": "4f-77aa1"},
                "resource_version": "123", "deletion_timestamp": "2026-11-29T21:26:34Z",
                "exit_codes": {"vault": 137}}}}));
        let owner = line(json!({"change": "owner", "object": {
            "how": "pod ledger-66995f776-72jw2 is gone, by its name of 66995f776"}}));
        let saw = line(json!({"client": "10.1.2.3:4000", "original": "[fd00::7]:80"}));
        let all = format!("{pod}{owner}{saw}");
        for secret in
            ["bank", "ledger", "72jw2", "66995f776", "vault", "77aa1", "10.1.2.3", "fd00::7"]
        {
            assert!(!all.contains(secret), "{secret} in {all}");
        }
        assert!(
            pod.contains(r#""kind":"ReplicaSet""#) && pod.contains(r#""resource_version":"123""#)
        );
        assert!(pod.contains("2026-11-29T21:26:34Z"), "{pod}");
        assert!(owner.contains("pod w"), "{owner}");
        assert!(pod.contains("198.18.0.0") && saw.contains("198.18.0.0:4000"), "{pod} {saw}");
        assert!(saw.contains("[2001:db8::1]:80"), "{saw}");
    }

    #[test]
    fn the_ordinal_of_a_stateful_pod_and_of_a_rollout_stay() {
        let mut redactor = Redactor::default();
        let mut value = json!({"rollout": "uid/hash/2", "name": "db-0"});
        redactor.value(&mut value);
        assert!(value["rollout"].as_str().unwrap().ends_with("/2"), "{value}");
        assert!(value["name"].as_str().unwrap().ends_with("-0"), "{value}");
    }
}
