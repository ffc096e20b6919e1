//! Sorting with one compiled sort for all types. `slice::sort_by` is compiled once for each type,
//! which is a little faster and takes four kilobytes of WebAssembly for each type.

use std::cmp::Ordering;

/// Returns the items in the order that `compare` gives. Items that compare as equal keep their
/// order.
pub(crate) fn sorted_by<T>(items: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if items.is_sorted_by(|a, b| compare(a, b).is_le()) {
        return items;
    }
    let compare_places = |a, b| match (items.get(a), items.get(b)) {
        (Some(a), Some(b)) => compare(a, b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    };
    let order = order(items.len(), &compare_places);
    let mut items: Vec<_> = items.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| items.get_mut(place)?.take()).collect()
}

/// Returns the numbers from 0 to `count - 1`, sorted by the order of the items at these positions.
fn order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<_> = (0..count).collect();
    // Places are distinct, so the order is stable though the sort is not, which takes less code.
    places.sort_unstable_by(|a, b| compare(*a, *b).then(a.cmp(b)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::config;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn sorted_by_agrees_with_the_standard_library(items: Vec<(u8, u8)>) {
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            prop_assert_eq!(sorted_by(items, |a, b| a.0.cmp(&b.0)), expected);
        }
    }
}
