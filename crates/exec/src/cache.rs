//! A small least-recently-used cache.

/// Keeps the `capacity` most recently used entries. Lookups are linear: a session sees few shapes at a time.
///
/// A lookup takes a predicate, so that a run finds its plan by borrowed shapes and values, without building a key. The
/// usual crates need a key that can be hashed.
pub struct Lru<K, V> {
    capacity: usize,
    /// Most recent last.
    entries: Vec<(K, V)>,
}

impl<K: PartialEq, V: Clone> Lru<K, V> {
    /// An empty cache.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), entries: Vec::new() }
    }

    /// Returns the entry whose key `matches` and makes it the most recent one.
    pub fn get(&mut self, matches: impl Fn(&K) -> bool) -> Option<V> {
        let at = self.entries.iter().rposition(|(key, _)| matches(key))?;
        let last = self.entries.len() - 1;
        self.entries[at..=last].rotate_left(1);
        Some(self.entries[last].1.clone())
    }

    /// Adds an entry. Evicts the least recently used one if the cache is full.
    pub fn insert(&mut self, key: K, value: V) {
        if self.entries.len() == self.capacity {
            self.entries.remove(0);
        }
        self.entries.push((key, value));
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let mut cache = Lru::new(2);
        cache.insert(1, "one");
        cache.insert(2, "two");
        assert_eq!(cache.get(|&key| key == 1), Some("one"));
        cache.insert(3, "three");
        assert_eq!(cache.get(|&key| key == 2), None);
        assert_eq!(cache.get(|&key| key == 1), Some("one"));
        assert_eq!(cache.len(), 2);
    }
}
