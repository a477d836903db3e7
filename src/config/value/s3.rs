//! Options of objects on S3, and the proxy to it.

use forebay_object::Proxy;

use super::{Value, Written};

/// Maximum number of tags of an object on S3.
const MAX_TAGS: usize = 10;

/// Storage class of packs; `None` is that of the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClass(pub Option<String>);

impl Value for StorageClass {
    const KIND: &'static str = "class";
    const EXAMPLE: &'static str = "none, or a class such as STANDARD_IA or INTELLIGENT_TIERING";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text {
            "none" => return Ok(StorageClass(None)),
            "GLACIER" | "DEEP_ARCHIVE" => {
                return Err(
                    "objects of this class have to be restored before they are read, which takes \
                     hours; GLACIER_IR can be read at once"
                        .to_owned(),
                );
            }
            _ => {}
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
            return Err("not the name of a class".to_owned());
        }
        Ok(StorageClass(Some(text.to_owned())))
    }

    fn write(&self) -> Written {
        or_none(self.0.as_deref())
    }
}

/// A key of the server's key management; `None` is its default key for S3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsKey(pub Option<String>);

impl Value for KmsKey {
    const KIND: &'static str = "key";
    const EXAMPLE: &'static str = "none, or the id, the alias or the ARN of a key";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "none" {
            return Ok(KmsKey(None));
        }
        // It is the value of a header.
        let fits = |byte: u8| byte.is_ascii_graphic();
        if text.is_empty() || text.len() > 2048 || !text.bytes().all(fits) {
            return Err("not the name of a key".to_owned());
        }
        Ok(KmsKey(Some(text.to_owned())))
    }

    fn write(&self) -> Written {
        or_none(self.0.as_deref())
    }
}

/// Tags of packs: keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags(pub Vec<(String, String)>);

impl Value for Tags {
    const KIND: &'static str = "tags";
    const EXAMPLE: &'static str = "none, or up to ten tags such as project=x,owner=y";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let mut tags: Vec<(String, String)> = Vec::new();
        if text.trim() == "none" {
            return Ok(Tags(tags));
        }
        for tag in text.split(',').map(str::trim) {
            let Some((key, value)) = tag.split_once('=') else {
                return Err(format!("`{tag}` is no tag: it is a key, `=` and a value"));
            };
            let (key, value) = (key.trim(), value.trim());
            let fits = |text: &str, most: usize| {
                let count = text.chars().count();
                let fits = |char: char| char.is_alphanumeric() || " +-=._:/@".contains(char);
                count <= most && text.chars().all(fits)
            };
            if key.is_empty() || !fits(key, 128) {
                return Err(format!(
                    "`{key}` cannot be the key of a tag: up to 128 letters, digits, spaces and +-=._:/@"
                ));
            }
            if key.to_ascii_lowercase().starts_with("aws:") {
                return Err(format!(
                    "`{key}`: keys that begin with aws: are Amazon's own"
                ));
            }
            if !fits(value, 256) {
                return Err(format!(
                    "`{value}` cannot be the value of a tag: up to 256 letters, digits, spaces and +-=._:/@"
                ));
            }
            if tags.iter().any(|(other, _)| other == key) {
                return Err(format!("there are two tags `{key}`"));
            }
            tags.push((key.to_owned(), value.to_owned()));
        }
        if tags.len() > MAX_TAGS {
            return Err(format!("S3 allows {MAX_TAGS} tags, not {}", tags.len()));
        }
        Ok(Tags(tags))
    }

    fn write(&self) -> Written {
        if self.0.is_empty() {
            return Written::List(vec!["none".to_owned()]);
        }
        let tags = self.0.iter().map(|(key, value)| format!("{key}={value}"));
        Written::List(tags.collect())
    }
}

/// The settings are shown, so a password belongs in the environment, which is not.
impl Value for Proxy {
    const KIND: &'static str = "proxy";
    const EXAMPLE: &'static str = "auto, none, or the URL of a proxy such as http://proxy:3128";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text {
            "auto" => return Ok(Proxy::Environment),
            "none" => return Ok(Proxy::Direct),
            _ => {}
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("neither a word nor a URL".to_owned());
        };
        if !matches!(scheme, "http" | "https") {
            return Err(format!(
                "there is no support for proxies of the kind `{scheme}`"
            ));
        }
        if rest.contains('@') {
            return Err(
                "credentials do not belong in settings, which are shown; put the URL with them into \
                 HTTPS_PROXY (HTTP_PROXY for a server without TLS), and set auto"
                    .to_owned(),
            );
        }
        let host = rest.strip_suffix('/').unwrap_or(rest);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(fits) {
            return Err("not the URL of a proxy".to_owned());
        }
        Ok(Proxy::Url(text.to_owned()))
    }

    fn write(&self) -> Written {
        Written::Text(match self {
            Proxy::Environment => "auto".to_owned(),
            Proxy::Direct => "none".to_owned(),
            Proxy::Url(url) => url.clone(),
        })
    }
}

fn or_none(text: Option<&str>) -> Written {
    Written::Text(text.unwrap_or("none").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_is_written_so_that_it_reads_back() {
        fn same<T: Value>(texts: &[&str]) {
            for text in texts {
                let value = T::read(text).unwrap();
                assert_eq!(value.write().to_string(), *text);
            }
        }
        same::<StorageClass>(&["none", "STANDARD_IA", "GLACIER_IR", "cold-1"]);
        same::<KmsKey>(&["none", "alias/key", "arn:aws:kms:eu-central-1:1:key/k"]);
        same::<Tags>(&["none", "a=b", "a=b=c,project=x y,empty=,größe=1"]);
        same::<Proxy>(&["auto", "none", "http://proxy:3128", "https://[::1]:443/"]);
    }

    #[test]
    fn what_is_wrong_is_refused_and_says_why() {
        fn wrong<T: Value>(text: &str, why: &str) {
            let error = T::read(text).err().unwrap();
            assert!(error.contains(why), "{text}: {error}");
        }
        for class in ["GLACIER", "DEEP_ARCHIVE"] {
            wrong::<StorageClass>(class, "restored");
        }
        for class in ["", "A B", "A\nB", "é"] {
            wrong::<StorageClass>(class, "not the name");
        }
        for key in ["", "a b", "a\nb"] {
            wrong::<KmsKey>(key, "not the name");
        }
        wrong::<Tags>("", "no tag");
        wrong::<Tags>("a", "no tag");
        wrong::<Tags>("=b", "key of a tag");
        wrong::<Tags>("a?=b", "key of a tag");
        wrong::<Tags>("a=b\n1", "value of a tag");
        wrong::<Tags>("AWS:a=b", "Amazon's");
        wrong::<Tags>("a=1,a=2", "two tags");
        wrong::<Tags>("a=,b=,c=,d=,e=,f=,g=,h=,i=,j=,k=", "10 tags, not 11");
        wrong::<Proxy>("proxy:3128", "neither");
        wrong::<Proxy>("socks5://proxy", "socks5");
        wrong::<Proxy>("http://me:secret@proxy", "credentials");
        wrong::<Proxy>("http://", "not the URL");
        wrong::<Proxy>("http://a b", "not the URL");
    }
}
