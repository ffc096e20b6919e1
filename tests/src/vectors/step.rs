//! Parses the steps of golden vectors.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{Subject, UserData};
use leasehold_core::lease::Outcome;
use leasehold_core::reconcile::Presence;
use leasehold_core::verify::Share;

use super::host::{BucketName, RecordsQuery};
use super::machines::{ReconcileStep, VerifyStep};
use super::notation::{
    is_source, read_bucket_type, read_id, read_source, read_source_type, read_subject, read_text, tokens,
};

/// The type URL of the data that steps attach to claims.
const DATA_TYPE: &str = "type.example/text";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Begin { cell: i64, update: UpdateRequest, organization: i64, key: Option<String> },
    Settle { cell: i64, lease: String, outcome: Outcome },
    Get(BucketName),
    Classify(Vec<BucketName>),
    Leases { cell: i64, limit: Option<i32>, since: Option<String>, next: bool },
    Outstanding { cell: i64 },
    Records(RecordsQuery),
    Verify(VerifyStep),
    Reconcile(ReconcileStep),
    Restart,
    Pass(u64),
    Forget,
}

/// Parses the text of a step. Returns one step, or N steps if the text begins with `N times`.
pub(super) fn parse(text: &str) -> Result<Vec<Step>> {
    let tokens = tokens(text);
    match tokens.split_at_checked(2) {
        Some(([times, word], step)) if word == "times" => {
            let times: u32 = times.parse().with_context(|| format!("`{times}` is no number of times"))?;
            (1..=times).map(|turn| parse_one(&numbered(step, turn))).collect()
        }
        _ => Ok(vec![parse_one(&tokens)?]),
    }
}

fn numbered(tokens: &[String], turn: u32) -> Vec<String> {
    tokens.iter().map(|token| token.replace('%', &turn.to_string())).collect()
}

fn parse_one(tokens: &[String]) -> Result<Step> {
    let (verb, rest) = tokens.split_first().context("a step is empty")?;
    Ok(match (verb.as_str(), rest) {
        ("begin", [cell, claims @ ..]) => begin(cell.parse()?, claims)?,
        ("commit", [cell, lease]) => settle(cell, lease, Outcome::Committed)?,
        ("rollback", [cell, lease]) => settle(cell, lease, Outcome::RolledBack)?,
        ("get", [bucket_type, value]) => Step::Get(bucket(bucket_type, value)?),
        ("classify", buckets @ [_, _, ..]) => Step::Classify(pairs(buckets)?),
        ("leases", [cell, options @ ..]) => leases(cell.parse()?, options)?,
        ("outstanding", [cell]) => Step::Outstanding { cell: cell.parse()? },
        ("records", [cell, source_type, options @ ..]) => records(cell.parse()?, source_type, options)?,
        ("verify", [cell, source_type, rows @ ..]) => verify(cell.parse()?, source_type, rows)?,
        ("reconcile", [cell, remote, local @ ..]) => reconcile(cell.parse()?, remote, local)?,
        ("restart", []) => Step::Restart,
        ("forget", []) => Step::Forget,
        ("pass", [seconds]) => Step::Pass(seconds.parse()?),
        _ => bail!("there is no such step, or it has other arguments"),
    })
}

fn bucket(bucket_type: &str, value: &str) -> Result<BucketName> {
    Ok(BucketName { bucket_type: read_bucket_type(bucket_type)?, value: read_text(value)?.into() })
}

fn pairs(tokens: &[String]) -> Result<Vec<BucketName>> {
    let (pairs, rest) = tokens.as_chunks::<2>();
    ensure!(rest.is_empty(), "each bucket is a type and a value");
    pairs.iter().map(|[bucket_type, value]| bucket(bucket_type, value)).collect()
}

fn settle(cell: &str, lease: &str, outcome: Outcome) -> Result<Step> {
    Ok(Step::Settle { cell: cell.parse()?, lease: lease.to_owned(), outcome })
}

fn begin(cell: i64, tokens: &[String]) -> Result<Step> {
    let mut update = UpdateRequest::default();
    let (mut organization, mut key) = (0, None);
    for part in tokens.chunk_by(|_, next| !begins_part(next)) {
        match part {
            [word, claim @ ..] if word == "create" => update.creates.extend(claims(claim)?),
            [word, claim @ ..] if word == "destroy" => update.destroys.extend(claims(claim)?),
            [word] => match word.split_once('=') {
                Some(("organization", id)) => organization = id.parse()?,
                _ => key = Some(read_key(word)?),
            },
            _ => bail!("a begin has `create`, `destroy`, `organization=` and `key=`"),
        }
    }
    Ok(Step::Begin { cell, update, organization, key })
}

/// True if a part of a begin starts with this token.
fn begins_part(token: &str) -> bool {
    matches!(token, "create" | "destroy") || token.starts_with("key=") || token.starts_with("organization=")
}

fn read_key(token: &str) -> Result<String> {
    let key = token.strip_prefix("key=").with_context(|| format!("`{token}` is no part of a begin"))?;
    if key.starts_with('"') { read_text(key) } else { Ok(key.to_owned()) }
}

fn claims(tokens: &[String]) -> Result<Vec<ClaimRequest>> {
    match tokens.split_first() {
        Some((copies, claim)) if copies.starts_with('x') => {
            let copies: u32 = copies.trim_start_matches('x').parse()?;
            (1..=copies).map(|copy| claim_request(&numbered(claim, copy))).collect()
        }
        _ => Ok(vec![claim_request(tokens)?]),
    }
}

fn claim_request(tokens: &[String]) -> Result<ClaimRequest> {
    let [bucket_type, value, rest @ ..] = tokens else { bail!("a claim has a bucket type and a value") };
    let BucketName { bucket_type, value } = bucket(bucket_type, value)?;
    let mut claim = ClaimRequest { bucket_type, value, subject: None, source: None, user_data: None };
    for token in rest {
        if let Some(data) = token.strip_prefix("data=") {
            let value = read_text(data)?.into_bytes();
            claim.user_data = Some(UserData { type_url: DATA_TYPE.to_owned(), value });
        } else if is_source(token) {
            claim.source = Some(read_source(token)?);
        } else {
            claim.subject = Some(read_subject(token)?);
        }
    }
    Ok(claim)
}

fn leases(cell: i64, options: &[String]) -> Result<Step> {
    let (mut limit, mut since, mut next) = (None, None, false);
    for option in options {
        match option.split_once('=') {
            Some(("limit", value)) => limit = Some(value.parse()?),
            Some(("since", value)) => since = Some(value.to_owned()),
            None if option == "next" => next = true,
            _ => bail!("`{option}` is no option of `leases`"),
        }
    }
    Ok(Step::Leases { cell, limit, since, next })
}

fn records(cell: i64, source_type: &str, options: &[String]) -> Result<Step> {
    let source_type = read_source_type(source_type)?.0;
    let mut query = RecordsQuery { cell, source_type, ..RecordsQuery::default() };
    for option in options {
        match option.split_once('=') {
            Some(("types", value)) => {
                let types: Result<_> = value.split(',').map(|name| Ok(read_bucket_type(name)?.0)).collect();
                query.bucket_types = types?;
            }
            Some(("gt", value)) => query.source_id_gt = read_id(value)?,
            Some(("lte", value)) => query.source_id_lte = read_id(value)?,
            _ => bail!("`{option}` is no option of `records`"),
        }
    }
    Ok(Step::Records(query))
}

/// A claim that a row of the cell's table requires, in a step `verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowClaim {
    pub(super) bucket_type: BucketType,
    pub(super) value: Arc<str>,
    pub(super) subject: Subject,
}

/// Parses the rest of a step `verify`: an optional `page=N`, an optional `share=PERCENT`, and the
/// rows. A row is `row SOURCE`, then bucket type, value and subject of each claim.
fn verify(cell: i64, source_type: &str, tokens: &[String]) -> Result<Step> {
    let source_type = read_source_type(source_type)?.0;
    let (page, tokens) = option("page=", tokens);
    let (percent, tokens) = option("share=", tokens);
    let rows_per_page = page.map_or(Ok(100), str::parse)?;
    let max_destroy_share = match percent {
        Some(percent) => Share::new(percent.parse::<f64>()? / 100.0).context("a share is at most 100 percent")?,
        None => Share::default(),
    };
    let mut rows = Vec::new();
    for row in tokens.chunk_by(|_, next| next != "row") {
        let [word, source, claims @ ..] = row else { bail!("a row has a source") };
        ensure!(word == "row", "`{word}` is no row");
        let (claims, rest) = claims.as_chunks::<3>();
        ensure!(rest.is_empty(), "each claim of a row is a type, a value and a subject");
        let claims: Result<Vec<_>> = claims.iter().map(row_claim).collect();
        rows.push((read_source(source)?.id.as_bytes().to_vec(), claims?));
    }
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(Step::Verify(VerifyStep { cell, source_type, rows_per_page, max_destroy_share, rows }))
}

/// Returns the value of an option if it is the first token, and the tokens after it.
fn option<'a>(prefix: &str, tokens: &'a [String]) -> (Option<&'a str>, &'a [String]) {
    match tokens.split_first() {
        Some((first, rest)) if first.starts_with(prefix) => (first.strip_prefix(prefix), rest),
        _ => (None, tokens),
    }
}

fn row_claim([bucket_type, value, subject]: &[String; 3]) -> Result<RowClaim> {
    let BucketName { bucket_type, value } = bucket(bucket_type, value)?;
    Ok(RowClaim { bucket_type, value, subject: read_subject(subject)? })
}

/// Parses the rest of a step `reconcile`: the age of the server's leases, and local rows such as
/// `L1=stale`.
fn reconcile(cell: i64, remote: &str, local: &[String]) -> Result<Step> {
    let remote = presence(
        remote
            .strip_prefix("remote=")
            .context("the age of the server's leases is missing: write `remote=stale` or `remote=fresh`")?,
    )?;
    let row = |token: &String| {
        let (lease, age) = token.split_once('=').with_context(|| format!("`{token}` is no local row"))?;
        Ok((lease.to_owned(), presence(age)?))
    };
    let local: Result<_> = local.iter().map(row).collect();
    Ok(Step::Reconcile(ReconcileStep { cell, remote, local: local? }))
}

fn presence(text: &str) -> Result<Presence> {
    match text {
        "fresh" => Ok(Presence::Fresh),
        "stale" => Ok(Presence::Stale),
        _ => bail!("`{text}` is neither `fresh` nor `stale`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_numbered() {
        let steps = parse("2 times begin 1 create USERNAMES \"t%\" create x3 EMAILS \"a%@b\" key=k%").unwrap();
        let [_, Step::Begin { update, key, .. }] = steps.as_slice() else { unreachable!("two begins") };
        let values: Vec<_> = update.creates.iter().map(|claim| &*claim.value).collect();
        // The number of the repetition replaces each `%` first, so the copies made by `x3` are
        // equal.
        assert_eq!(values, ["t2", "a2@b", "a2@b", "a2@b"]);
        assert_eq!(key.as_deref(), Some("k2"));
    }

    #[test]
    fn invalid_steps_are_refused() {
        for text in
            ["", "sing", "begin x", "begin 1 creat USERNAMES \"a\"", "get USERNAMES", "leases 1 far", "x times restart"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
