//! The pieces of an expression's text.

/// A piece of a text: a word, a number, a text in quotes, a sign.
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// In bytes.
    pub(super) start: usize,
    /// In characters, from 1.
    pub(super) column: usize,
}

/// The pieces of a text in their order.
pub(super) struct Tokens<'a> {
    source: &'a str,
    at: usize,
}

impl Token<'_> {
    pub(super) fn is_comment(&self) -> bool {
        self.text.starts_with("//")
    }
}

impl<'a> Tokens<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self { source, at: 0 }
    }

    /// The next piece, which may be a comment.
    pub(super) fn piece(&mut self) -> Option<Token<'a>> {
        let rest = &self.source[self.at..];
        let start = self.at + rest.len() - rest.trim_start().len();
        let rest = &self.source[start..];
        if rest.is_empty() {
            return None;
        }
        self.at = start + Self::length(rest);
        Some(Token {
            text: &self.source[start..self.at],
            start,
            column: self.source[..start].chars().count() + 1,
        })
    }

    fn length(rest: &str) -> usize {
        let bytes = rest.as_bytes();
        let prefix = bytes.iter().take_while(|it| b"rRbB".contains(it)).count();
        if let Some(&quote @ (b'\'' | b'"')) = bytes.get(prefix)
            && prefix <= 2
        {
            let is_raw = bytes.iter().take(prefix).any(|it| b"rR".contains(it));
            return prefix + quoted(bytes.get(prefix..).unwrap_or_default(), quote, is_raw);
        }
        match bytes.first() {
            Some(b'/') if bytes.get(1) == Some(&b'/') => rest.find('\n').unwrap_or(rest.len()),
            Some(b'&' | b'|') if bytes.get(1) == bytes.first() => 2,
            Some(byte) if byte.is_ascii_digit() => number(rest),
            Some(byte) if byte.is_ascii_alphabetic() || *byte == b'_' => {
                let word = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                word + raw_text(rest, word)
            }
            _ => rest.chars().next().map_or(0, char::len_utf8),
        }
    }
}

/// The length of a number: `12`, `0x1F`, `1.5`, `1e-5`, `3u`.
fn number(rest: &str) -> usize {
    let word = |from: usize| {
        let after = rest.get(from..).unwrap_or_default();
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        from + end.unwrap_or(after.len())
    };
    let digit_at = |at: usize| rest.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let mut end = word(0);
    if rest.as_bytes().get(end) == Some(&b'.') && digit_at(end + 1) {
        end = word(end + 1);
    }
    let has_exponent = rest.get(..end).is_some_and(|it| it.ends_with(['e', 'E']));
    let is_signed = matches!(rest.as_bytes().get(end), Some(b'+' | b'-'));
    if has_exponent && is_signed && digit_at(end + 1) && !rest.starts_with("0x") {
        end = word(end + 1);
    }
    end
}

/// The length of the text without escapes that a word such as `r` starts; 0 if it starts none.
fn raw_text(rest: &str, word: usize) -> usize {
    let (prefix, after) = rest.split_at(word);
    let is_raw = matches!(
        prefix,
        "r" | "R" | "br" | "bR" | "Br" | "BR" | "rb" | "rB" | "Rb" | "RB"
    );
    let quote = after
        .chars()
        .next()
        .filter(|c| is_raw && matches!(c, '\'' | '"'));
    let Some(quote) = quote else { return 0 };
    let triple: String = [quote; 3].iter().collect();
    let end = if after.starts_with(&triple) {
        triple
    } else {
        quote.to_string()
    };
    let inner = after.get(end.len()..).unwrap_or_default();
    inner
        .find(&end)
        .map_or(after.len(), |at| at + 2 * end.len())
}

/// The length of a text in quotes, also of one in three quotes.
fn quoted(bytes: &[u8], quote: u8, is_raw: bool) -> usize {
    let end = if bytes.starts_with(&[quote; 3]) {
        &[quote; 3][..]
    } else {
        &[quote; 1][..]
    };
    let mut at = end.len();
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(end) {
            return at + end.len();
        }
        let is_escape = !is_raw && rest.starts_with(b"\\");
        at += if is_escape { 2 } else { 1 };
    }
    bytes.len()
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let piece = self.piece()?;
            if !piece.is_comment() {
                return Some(piece);
            }
        }
    }
}
