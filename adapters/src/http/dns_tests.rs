//! Tests of questions and answers.

use hickory_proto::rr::Record;
use hickory_proto::rr::rdata::{A, AAAA, CNAME};

use super::*;

fn question() -> Question {
    Question::new("api.example.org", RecordType::A).expect("a name")
}

fn name(text: &str) -> Name {
    let mut name = Name::from_ascii(text).expect("a name");
    name.set_fqdn(true);
    name
}

/// A well-formed answer to a question, changed by `change`.
fn answer(question: &Question, change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = Message::response(question.id, OpCode::Query);
    message.add_query(Query::query(question.name.clone(), question.kind));
    change(&mut message);
    message.to_vec().expect("a message")
}

fn a(owner: &str, ttl: u32, address: [u8; 4]) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A(address.into())))
}

fn alias(owner: &str, ttl: u32, target: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(target))))
}

#[test]
fn addresses_are_found_through_aliases() {
    let question = question();
    let bytes = answer(&question, |message| {
        message.add_answer(alias("API.example.org", 90, "edge.example.net"));
        message.add_answer(a("edge.example.net", 60, [192, 0, 2, 1]));
        message.add_answer(a("edge.example.net", 30, [192, 0, 2, 2]));
        message.add_answer(a("other.example.net", 1, [169, 254, 169, 254]));
    });
    let expected = Answer { addresses: vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()], ttl: 30 };
    assert_eq!(question.reply(&bytes), Reply::Answer(expected));
}

#[test]
fn a_loop_of_aliases_ends() {
    let question = question();
    let bytes = answer(&question, |message| {
        message.add_answer(alias("api.example.org", 9, "b.example.org"));
        message.add_answer(alias("b.example.org", 9, "api.example.org"));
    });
    assert!(matches!(question.reply(&bytes), Reply::Answer(answer) if answer.addresses.is_empty()));
}

#[test]
fn only_the_answer_to_the_question_counts() {
    let question = question();
    let genuine = answer(&question, |_| {});
    let mut forged = genuine.clone();
    forged[0] ^= 1;
    assert_eq!(question.reply(&forged), Reply::Stray, "another identifier");
    let other = answer(&question, |message| message.queries[0].name = name("evil.example.org"));
    assert_eq!(question.reply(&other), Reply::Stray, "another name");
    let other = answer(&question, |message| message.queries[0].query_type = RecordType::AAAA);
    assert_eq!(question.reply(&other), Reply::Stray, "another type");
    let other = answer(&question, |message| message.metadata.message_type = MessageType::Query);
    assert_eq!(question.reply(&other), Reply::Stray, "a question, not an answer");
    let wrong_family = answer(&question, |message| {
        message.add_answer(Record::from_rdata(name("api.example.org"), 5, RData::AAAA(AAAA([0; 16].into()))));
    });
    assert!(matches!(question.reply(&wrong_family), Reply::Answer(answer) if answer.addresses.is_empty()));
}

#[test]
fn failures_and_cut_off_answers_are_told_apart() {
    let question = question();
    let with = |code| answer(&question, |message| message.metadata.response_code = code);
    assert_eq!(question.reply(&with(ResponseCode::NXDomain)), Reply::Answer(Answer::default()));
    assert_eq!(question.reply(&with(ResponseCode::ServFail)), Reply::Failed(ResolveFault::ServerFailed));
    assert_eq!(question.reply(&with(ResponseCode::Refused)), Reply::Failed(ResolveFault::ServerFailed));
    let cut = answer(&question, |message| message.metadata.truncation = true);
    assert_eq!(question.reply(&cut), Reply::CutOff);
}

#[test]
fn every_prefix_of_an_answer_is_malformed_and_none_panics() {
    let question = question();
    let bytes = answer(&question, |message| {
        message.add_answer(alias("api.example.org", 90, "edge.example.net"));
        message.add_answer(a("edge.example.net", 60, [192, 0, 2, 1]));
    });
    for length in 0..bytes.len() {
        assert_eq!(
            question.reply(&bytes[..length]),
            Reply::Failed(ResolveFault::Malformed),
            "{length} bytes"
        );
    }
}

#[test]
fn families_are_joined() {
    let v4 = Answer { addresses: vec![[192, 0, 2, 1].into()], ttl: 30 };
    let v6 = Answer { addresses: vec!["2001:db8::1".parse().expect("an address")], ttl: 10 };
    let both = join(Some(v4.clone()), v6.clone());
    assert_eq!((both.addresses.len(), both.ttl), (2, 10));
    let none = Answer { addresses: Vec::new(), ttl: 5 };
    assert_eq!(join(Some(v4.clone()), none.clone()), v4, "an empty answer shortens nothing");
    assert_eq!(join(Some(none), v6.clone()), v6);
}
