//! A table of things in flight with small stable names, so that steady state allocates nothing.

/// A table that gives each value an index and reuses the indices.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Stores a value and names it.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(name) = self.free.pop() {
            self.places[name as usize] = Some(value);
            return name;
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u32
    }

    /// The value of this name.
    #[must_use]
    pub(crate) fn get(&self, name: u32) -> Option<&T> {
        self.places.get(name as usize)?.as_ref()
    }

    /// The value of this name, to change.
    ///
    /// # Panics
    /// If there is none: names are the engine's own.
    pub(crate) fn at(&mut self, name: u32) -> &mut T {
        self.places[name as usize].as_mut().expect("a name in use")
    }

    /// Puts what becomes of the value of this name in its place.
    pub(crate) fn change(&mut self, name: u32, change: impl FnOnce(T) -> T) {
        let place = &mut self.places[name as usize];
        *place = place.take().map(change);
    }

    /// Takes the value out and frees its name.
    pub(crate) fn remove(&mut self, name: u32) -> Option<T> {
        let value = self.places.get_mut(name as usize)?.take()?;
        self.free.push(name);
        Some(value)
    }

    /// All values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// One past the highest name in use.
    #[must_use]
    pub(crate) fn capacity(&self) -> u32 {
        self.places.len() as u32
    }

    /// How many values there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
