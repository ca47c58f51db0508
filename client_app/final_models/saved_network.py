"""A network with the saved model of an experiment loaded, to evaluate or predict with it."""

from client_app.hospital_folder import FolderError
from learning.models import ModelError
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from operation.config import SettingsError
from protocol.codebook import Codebook
from protocol.descriptor import Descriptor
from protocol.model_bytes import ModelBytesError, ModelState
from protocol.model_file import from_model_file

from .model_folder import MODEL, ModelFolder


class SavedNetwork:
    """The network of a closed experiment, its descriptor and its codebook."""

    def __init__(self, folder: ModelFolder, *, device: str = "cpu") -> None:
        self.folder = folder
        self.descriptor = folder.descriptor()
        self.codebook: Codebook | None = folder.codebook(self.descriptor)
        self.network = new_network(self.descriptor, seed=0, device=device)
        self._load(folder.model_bytes())

    def first_model(self) -> ModelState | None:
        """Return the model that training began with, if the coordinator gave one."""
        data = self.folder.first_model_bytes()
        return None if data is None else self._read(data)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; numbers where no codebook names them."""
        if self.codebook is not None:
            return self.codebook.classes
        return tuple(f"class {number}" for number in range(self.descriptor.classes))

    def _load(self, data: bytes) -> None:
        model = self._read(data)
        self.network.load(model.parameters, model.buffers)

    def _read(self, data: bytes) -> ModelState:
        try:
            return from_model_file(data, ModelState(*self.network.arrays()))
        except ModelBytesError as error:
            raise FolderError(f"{self.folder.path / MODEL} {error}") from error


def new_network(descriptor: Descriptor, *, seed: int, device: str) -> Network:
    """Build the network of an experiment with fresh weights."""
    try:
        settings = TrainingSettings.parse(descriptor.training, source="descriptor")
        task = TaskSpec(descriptor.shape, descriptor.classes)
        return Network(settings, task, seed=seed, device=device)
    except (ModelError, SettingsError) as error:
        raise FolderError(
            f"the model of {descriptor.experiment} can't be built: {error}"
        ) from error
