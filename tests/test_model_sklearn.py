"""scikit-learn's own checks of an estimator. All that apply are passed; `check_estimator` skips two by itself:

check_array_api_input needs SCIPY_ARRAY_API, and check_classifier_data_not_an_array needs pandas, both of which are not
asked for here. The images of X are outside of what the checks know: they give feature vectors alone.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from randpath.model.classifier import PathClassifier


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([PathClassifier(epochs=20, threads=1, modules=2, candidates=1, width=32)])
def test_scikit_learns_check(estimator, check):
    check(estimator)
