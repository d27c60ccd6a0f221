//! Things in progress, named by small numbers.

/// A table whose places are used again.
#[derive(Debug)]
pub struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Keeps a thing; returns its id.
    pub fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(thing);
                place
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() as u32 - 1
            }
        }
    }

    /// The thing of this id.
    pub fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// Takes a thing out; its id is given again.
    pub fn remove(&mut self, place: u32) -> Option<T> {
        let thing = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(thing)
    }

    /// The names of all.
    pub fn places(&self) -> impl Iterator<Item = u32> {
        let taken = |(place, thing): (usize, &Option<T>)| thing.as_ref().map(|_| place as u32);
        self.places.iter().enumerate().filter_map(taken)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of taken places.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}
