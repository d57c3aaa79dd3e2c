use super::*;

#[test]
fn a_number_of_replicas_is_read_with_its_sign() {
    assert_eq!("8".parse(), Ok(ReplicaCount::Is(8)));
    assert_eq!("+2".parse(), Ok(ReplicaCount::More(2)));
    assert_eq!("-12".parse(), Ok(ReplicaCount::Fewer(12)));
    for wrong in ["", "+", "two", "1.5", "++1"] {
        assert!(wrong.parse::<ReplicaCount>().unwrap_err().contains("+2"), "{wrong}");
    }
}
