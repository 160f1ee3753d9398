//! Writes every mutant into the source, each behind a question: `if crate::mutant::on(17) { changed } else { as it was }`.
//!
//! Nothing is taken away from the text, only put in, and every change holds the text as it was, without other mutants: one
//! mutant is on at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proc_macro2::{LineColumn, Span};
use serde::{Deserialize, Serialize};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// What `cargo mutants --list --json` says of a mutant.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    pub name: String,
    pub file: String,
    pub genre: String,
    pub replacement: String,
    pub span: Place,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub start: Point,
    pub end: Point,
}

/// Counted from one, as there.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub line: usize,
    pub column: usize,
}

/// What is not planted, by what the compiler said to it.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Left {
    /// Mutants that do not compile.
    pub unviable: BTreeSet<usize>,
    /// Functions that constants call, by name: they stay `const`, so they can ask nothing.
    pub constant: BTreeSet<String>,
}

/// A file with its mutants in it.
#[derive(Debug)]
pub struct Planted {
    pub text: String,
    /// Where each one's own text stands.
    pub ranges: Vec<(usize, Range<usize>)>,
    /// Those that could not be put in, and why not.
    pub not: Vec<(usize, &'static str)>,
}

/// Something to put into the text: of those at the same place, the one that reaches furthest comes first.
struct Insertion {
    at: usize,
    /// The end of what it opens; for what closes, its beginning.
    other: usize,
    closes: bool,
    text: String,
    ids: Vec<(usize, Range<usize>)>,
}

struct Planter<'a> {
    text: &'a str,
    lines: Vec<usize>,
    wanted: BTreeMap<(Place, &'a str), Vec<(usize, &'a Mutant)>>,
    left: &'a Left,
    insertions: Vec<Insertion>,
    cut: Vec<Range<usize>>,
    not: Vec<(usize, &'static str)>,
    done: BTreeSet<usize>,
    /// Whether the code around cannot ask: a constant, or a function that stays one.
    constant: bool,
    /// Whether the match around takes everything in an arm without a guard.
    complete: bool,
}

/// Plants `mutants` (with their numbers) into the text of their file.
pub fn plant(text: &str, mutants: &[(usize, &Mutant)], left: &Left) -> syn::Result<Planted> {
    let mut wanted: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, mutant) in mutants {
        wanted.entry((mutant.span, mutant.genre.as_str())).or_default().push((*id, *mutant));
    }
    let starts = text.match_indices('\n').map(|(at, _)| at + 1);
    let mut planter = Planter {
        text,
        lines: std::iter::once(0).chain(starts).collect(),
        wanted,
        left,
        insertions: Vec::new(),
        cut: Vec::new(),
        not: Vec::new(),
        done: BTreeSet::new(),
        constant: false,
        complete: false,
    };
    planter.visit_file(&syn::parse_file(text)?);
    let mut not = planter.not;
    let lost = mutants.iter().filter(|(id, _)| !planter.done.contains(id) && !left.unviable.contains(id));
    not.extend(lost.map(|(id, _)| (*id, "its place was not found")));
    let (text, ranges) = written(text, planter.insertions, planter.cut);
    Ok(Planted { text, ranges, not })
}

fn written(
    text: &str,
    mut insertions: Vec<Insertion>,
    mut cut: Vec<Range<usize>>,
) -> (String, Vec<(usize, Range<usize>)>) {
    // What closes comes before what opens; inner ones close first, outer ones open first.
    let mut number = 0_i64;
    insertions.sort_by_cached_key(|one| {
        number += 1;
        (one.at, !one.closes, std::cmp::Reverse(one.other), if one.closes { -number } else { number })
    });
    cut.sort_by_key(|range| range.start);
    let (mut out, mut ranges, mut from) = (String::new(), Vec::new(), 0);
    let copy = |out: &mut String, range: Range<usize>| {
        let mut from = range.start;
        for gone in cut.iter().filter(|gone| gone.start >= range.start && gone.end <= range.end) {
            out.push_str(&text[from..gone.start]);
            out.extend(std::iter::repeat_n(' ', gone.len()));
            from = gone.end;
        }
        out.push_str(&text[from..range.end]);
    };
    for one in insertions {
        copy(&mut out, from..one.at);
        from = one.at;
        ranges.extend(one.ids.into_iter().map(|(id, at)| (id, out.len() + at.start..out.len() + at.end)));
        out.push_str(&one.text);
    }
    copy(&mut out, from..text.len());
    (out, ranges)
}

impl<'a> Planter<'a> {
    fn offset(&self, at: LineColumn) -> usize {
        let line = self.lines[at.line - 1];
        let rest = &self.text[line..];
        line + rest.char_indices().nth(at.column).map_or(rest.len(), |(offset, _)| offset)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.offset(span.start())..self.offset(span.end())
    }

    /// The mutants at this place that are to be planted.
    fn take(&mut self, span: Span, genre: &'static str) -> Vec<(usize, &'a Mutant)> {
        let point = |at: LineColumn| Point { line: at.line, column: at.column + 1 };
        let place = Place { start: point(span.start()), end: point(span.end()) };
        let mut found = self.wanted.remove(&(place, genre)).unwrap_or_default();
        self.done.extend(found.iter().map(|(id, _)| *id));
        found.retain(|(id, _)| !self.left.unviable.contains(id));
        if self.constant {
            self.not.extend(found.drain(..).map(|(id, _)| (id, "a constant calls it")));
        }
        found
    }

    fn around(&mut self, range: Range<usize>, before: (String, Vec<(usize, Range<usize>)>), after: &str) {
        self.insertions.push(Insertion {
            at: range.start,
            other: range.end,
            closes: false,
            text: before.0,
            ids: before.1,
        });
        let text = after.to_owned();
        self.insertions.push(Insertion {
            at: range.end,
            other: range.start,
            closes: true,
            text,
            ids: Vec::new(),
        });
    }

    /// `(if on(1) { changed } else if on(2) { changed } else { as it was })`.
    fn choose(&mut self, range: Range<usize>, changed: Vec<(usize, String)>) {
        if changed.is_empty() {
            return;
        }
        let (mut text, mut ids) = (String::from("("), Vec::new());
        for (id, changed) in changed {
            if syn::parse_str::<syn::Expr>(&changed).is_err() {
                self.not.push((id, "unviable: it is no expression"));
                continue;
            }
            let from = text.len();
            text += &format!("if crate::mutant::on({id}) {{ {} }} else ", on_one_line(&changed));
            ids.push((id, from..text.len()));
        }
        if ids.is_empty() {
            return;
        }
        text.push('{');
        self.around(range, (text, ids), "})");
    }

    /// A function that returns something else at once.
    fn value(&mut self, body: Range<usize>, found: &[(usize, &Mutant)]) {
        let (mut text, mut ids) = (String::new(), Vec::new());
        for (id, mutant) in found {
            if syn::parse_str::<syn::Expr>(&mutant.replacement).is_err() {
                self.not.push((*id, "unviable: it is no expression"));
                continue;
            }
            let from = text.len();
            text += &format!("if crate::mutant::on({id}) {{ return {}; }} ", mutant.replacement);
            ids.push((*id, from..text.len()));
        }
        self.insertions.push(Insertion { at: body.start, other: usize::MAX, closes: false, text, ids });
    }

    /// A function that returns some iterator has one type of it, so an empty one is the same with nothing let through.
    fn iterator(&mut self, body: Range<usize>, found: &[(usize, &Mutant)]) {
        let (mut text, mut ids) = (String::from("})"), Vec::new());
        for (id, mutant) in found {
            if mutant.replacement != "::std::iter::empty()" {
                self.not.push((*id, "an iterator of a type without a name"));
                continue;
            }
            let from = text.len();
            text += &format!(".filter(move |_| !crate::mutant::on({id}))");
            ids.push((*id, from..text.len()));
        }
        if !ids.is_empty() {
            let open = Insertion {
                at: body.start,
                other: usize::MAX,
                closes: false,
                text: "({".to_owned(),
                ids: Vec::new(),
            };
            self.insertions.push(open);
            self.insertions.push(Insertion { at: body.end, other: 0, closes: true, text, ids });
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block, walk: impl FnOnce(&mut Self)) {
        let around = self.constant;
        if let Some(token) = &signature.constness {
            if self.left.constant.contains(&signature.ident.to_string()) {
                self.constant = true;
            } else {
                self.cut.push(self.range(token.span()));
            }
        }
        if let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) {
            let span = first.span().join(last.span()).unwrap_or_else(|| first.span());
            let found = self.take(span, "FnValue");
            match &signature.output {
                syn::ReturnType::Type(_, output) if matches!(**output, syn::Type::ImplTrait(_)) => {
                    self.iterator(self.range(span), &found);
                }
                _ => self.value(self.range(span), &found),
            }
        }
        walk(self);
        self.constant = around;
    }
}

/// Comments to the end of a line would swallow what follows.
fn on_one_line(code: &str) -> String {
    let line = |line: &str| match line.find("//") {
        Some(at) if !line[..at].contains('"') => line[..at].to_owned(),
        _ => line.to_owned(),
    };
    code.lines().map(line).collect::<Vec<_>>().join(" ")
}

fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Planter<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block, |planter| visit::visit_item_fn(planter, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, |planter| visit::visit_impl_item_fn(planter, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block, |planter| visit::visit_trait_item_fn(planter, item));
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let around = std::mem::replace(&mut self.constant, true);
        visit::visit_item_const(self, item);
        self.constant = around;
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        let around = std::mem::replace(&mut self.constant, true);
        visit::visit_item_static(self, item);
        self.constant = around;
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        let around = std::mem::replace(&mut self.constant, true);
        visit::visit_impl_item_const(self, item);
        self.constant = around;
    }

    fn visit_variant(&mut self, item: &'ast syn::Variant) {
        let around = std::mem::replace(&mut self.constant, true);
        visit::visit_variant(self, item);
        self.constant = around;
    }

    fn visit_expr_repeat(&mut self, item: &'ast syn::ExprRepeat) {
        self.visit_expr(&item.expr);
        let around = std::mem::replace(&mut self.constant, true);
        self.visit_expr(&item.len);
        self.constant = around;
    }

    fn visit_type(&mut self, item: &'ast syn::Type) {
        let around = std::mem::replace(&mut self.constant, true);
        visit::visit_type(self, item);
        self.constant = around;
    }

    fn visit_expr_const(&mut self, item: &'ast syn::ExprConst) {
        let around = std::mem::replace(&mut self.constant, true);
        visit::visit_expr_const(self, item);
        self.constant = around;
    }

    fn visit_pat(&mut self, item: &'ast syn::Pat) {
        let around = std::mem::replace(&mut self.constant, true);
        visit::visit_pat(self, item);
        self.constant = around;
    }

    fn visit_expr_binary(&mut self, item: &'ast syn::ExprBinary) {
        let found = self.take(item.op.span(), "BinaryOperator");
        let (whole, op) = (self.range(item.span()), self.range(item.op.span()));
        if has_let(&item.left) || has_let(&item.right) {
            self.not.extend(found.iter().map(|(id, _)| (*id, "unviable: a chain with let")));
        } else {
            let changed = found.iter().map(|(id, mutant)| {
                let (left, right) = (&self.text[whole.start..op.start], &self.text[op.end..whole.end]);
                (*id, format!("({left}) {} ({right})", mutant.replacement))
            });
            let changed = changed.collect();
            self.choose(whole, changed);
        }
        visit::visit_expr_binary(self, item);
    }

    fn visit_expr_unary(&mut self, item: &'ast syn::ExprUnary) {
        let found = self.take(item.op.span(), "UnaryOperator");
        let operand = self.text[self.range(item.expr.span())].to_owned();
        let changed = found.iter().map(|(id, mutant)| (*id, format!("{} {operand}", mutant.replacement)));
        let changed = changed.collect();
        self.choose(self.range(item.span()), changed);
        visit::visit_expr_unary(self, item);
    }

    fn visit_expr_match(&mut self, item: &'ast syn::ExprMatch) {
        let takes_all =
            |arm: &syn::Arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_) | syn::Pat::Ident(_));
        self.visit_expr(&item.expr);
        for arm in &item.arms {
            self.complete = item.arms.iter().any(takes_all);
            self.visit_arm(arm);
        }
    }

    fn visit_arm(&mut self, item: &'ast syn::Arm) {
        let deleted = self.take(item.span(), "MatchArm");
        let guarded = item.guard.as_ref().map(|(_, guard)| guard);
        let end =
            guarded.map_or_else(|| self.range(item.pat.span()).end, |guard| self.range(guard.span()).end);
        if let Some(guard) = guarded {
            let found = self.take(guard.span(), "MatchArmGuard");
            if has_let(guard) {
                self.not.extend(found.iter().chain(&deleted).map(|(id, _)| (*id, "a guard with let")));
            } else {
                let (mut text, mut close, mut ids) = (String::new(), String::new(), Vec::new());
                for (id, mutant) in found {
                    let (not, how) = if mutant.replacement == "true" { ("", "||") } else { ("!", "&&") };
                    let from = text.len();
                    text += &format!("({not}crate::mutant::on({id}) {how} (");
                    ids.push((id, from..text.len()));
                    close += "))";
                }
                for (id, _) in &deleted {
                    let from = text.len();
                    text += &format!("(!crate::mutant::on({id}) && (");
                    ids.push((*id, from..text.len()));
                    close += "))";
                }
                self.around(self.range(guard.span()), (text, ids), &close);
            }
        } else {
            for (id, _) in deleted {
                if !self.complete {
                    self.not.push((id, "unviable: nothing takes what it takes"));
                    continue;
                }
                let text = format!(" if !crate::mutant::on({id})");
                let ids = vec![(id, 0..text.len())];
                self.insertions.push(Insertion { at: end, other: 0, closes: true, text, ids });
            }
        }
        visit::visit_arm(self, item);
    }

    fn visit_expr_struct(&mut self, item: &'ast syn::ExprStruct) {
        for field in &item.fields {
            let found = self.take(field.span(), "StructField");
            let Some(rest) = &item.rest else { continue };
            let (base, member) = (self.text[self.range(rest.span())].to_owned(), &field.member);
            let member = self.text[self.range(member.span())].to_owned();
            let changed = found.iter().map(|(id, _)| (*id, format!("({base}).{member}"))).collect();
            self.choose(self.range(field.expr.span()), changed);
        }
        visit::visit_expr_struct(self, item);
    }
}
