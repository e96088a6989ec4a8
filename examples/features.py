"""Put randpath behind a network of your own: `features=` turns images into vectors, the classifier grows on these.

Here the "pretrained network" is a principal component analysis of five digits, to need no download; any function from
images to an (n, d) array will do, e.g. `lambda x: my_torch_backbone(preprocess(x)).numpy()`. It is not stored: `load`
asks for it again. The memory then holds vectors, not pictures.

    python examples/features.py
"""

import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from randpath import PathClassifier


def main() -> None:
    X, y = load_digits(return_X_y=True)
    images = (X.reshape(-1, 8, 8) * 15).astype(np.uint8)
    pretrained = PCA(n_components=24, random_state=0).fit(X[y < 5])  # it has never seen the digits 5 to 9

    def features(pictures: np.ndarray) -> np.ndarray:
        return pretrained.transform(pictures.reshape(len(pictures), -1) / 15.0)

    train, test = np.arange(len(y)) % 4 != 0, np.arange(len(y)) % 4 == 0
    model = PathClassifier(features=features)
    for classes in ((0, 1, 2, 3, 4), (5,), (6, 7), (8,), (9,)):
        new = train & np.isin(y, classes)
        model.partial_fit(images[new], y[new])
        seen = test & np.isin(y, model.classes_)
        print(f"learned {classes}: right on {model.score(images[seen], y[seen]):.1%} of {len(model.classes_)} classes")

    with tempfile.TemporaryDirectory() as directory:
        model.save(directory)
        again = PathClassifier.load(directory, features=features)
        assert (again.predict(images[test]) == model.predict(images[test])).all()


if __name__ == "__main__":
    main()
