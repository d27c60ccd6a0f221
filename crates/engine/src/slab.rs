//! A table of operations in progress. Each value has a small id, so that steady state allocates
//! nothing.

use std::marker::PhantomData;

/// The id of a value in a [`Slab`].
pub(crate) trait SlabId: Copy {
    /// The id of a place.
    fn new(index: u32) -> Self;

    /// The place.
    fn index(self) -> u32;
}

/// A table that gives each value an id and uses ids again.
#[derive(Debug)]
pub(crate) struct Slab<I, T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    ids: PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
            ids: PhantomData,
        }
    }
}

impl<I: SlabId, T> Slab<I, T> {
    /// Stores a value and gives it an id.
    pub(crate) fn insert(&mut self, value: T) -> I {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(value);
            return I::new(index);
        }
        self.places.push(Some(value));
        I::new((self.places.len() - 1) as u32)
    }

    /// The value of this id.
    #[must_use]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.places.get(id.index() as usize)?.as_ref()
    }

    /// The value of this id, to change.
    ///
    /// # Panics
    /// If there is none: ids are the engine's own.
    pub(crate) fn at(&mut self, id: I) -> &mut T {
        self.places[id.index() as usize]
            .as_mut()
            .expect("an id in use")
    }

    /// Replaces the value of this id by what `change` makes of it.
    pub(crate) fn change(&mut self, id: I, change: impl FnOnce(T) -> T) {
        let place = &mut self.places[id.index() as usize];
        *place = place.take().map(change);
    }

    /// Takes the value out and frees its id.
    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let value = self.places.get_mut(id.index() as usize)?.take()?;
        self.free.push(id.index());
        Some(value)
    }

    /// All values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// All ids in use, lowest first, and ids of places that are free.
    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.places.len() as u32).map(I::new)
    }

    /// The number of values.
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
